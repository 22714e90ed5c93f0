import io
import sys

from lensbox.train.run.progress_bar import ProgressBar, open_progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_shows_share_text_and_lines_above(capsys):
    stream = Terminal()
    bar = ProgressBar(stream)
    bar.begin(0.25)
    bar.show("step 7, 90 img/s, loss 1.5000")
    bar.write("a line")
    bar.advance(0.5)
    bar.close()
    drawn = stream.getvalue()
    assert "25.0%|" in drawn
    assert " 50.0%|" in drawn
    assert "step 7, 90 img/s, loss 1.5000" in drawn
    assert "a line" not in drawn
    assert capsys.readouterr().out == "a line\n"


def test_needs_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert open_progress_bar() is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = open_progress_bar()
    assert bar is not None
    bar.close()


def test_without_tqdm_there_is_none(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert open_progress_bar() is None
