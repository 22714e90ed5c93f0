"""The article's toy: its net on its random data, trained by minimising either of two things."""
