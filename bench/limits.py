"""What a figure is held to."""

from dataclasses import dataclass

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Limit:
    """must: what is accepted; aim: what is striven for, if that is more. at_most: whether less is better."""

    must: float
    aim: float | None = None
    at_most: bool = False

    @property
    def cells(self) -> list[str]:
        """must and aim, as tables show them."""
        return [f"{self.must:,g}", "" if self.aim is None else f"{self.aim:,g}"]

    def verdict(self, value: float | None) -> str:
        """In a word or two; in capitals where the figure is on the wrong side."""
        if value is None:
            return NOT_MEASURED
        if self.aim is not None and self._holds(value, self.aim):
            return "aim reached"
        if self._holds(value, self.must):
            return "reached"
        return "ABOVE" if self.at_most else "BELOW"

    def _holds(self, value: float, limit: float) -> bool:
        return value <= limit if self.at_most else value >= limit
