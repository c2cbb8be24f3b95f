"""The colours of the demo's picture and page, light and dark."""

INK, MUTED, GRID, PAPER, BAD, CROWD, IDLE = (
    "#1f2328",
    "#656d76",
    "#d1d9e0",
    "#fefefe",
    "#cf222e",
    "#ffd8d3",
    "#ffe8a3",
)
DARK = {
    INK: "#e6edf3",
    MUTED: "#9198a1",
    GRID: "#3d444d",
    PAPER: "#0d1117",
    BAD: "#ff7b72",
    CROWD: "#5a1e1c",
    IDLE: "#57470f",
}
VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    PAPER: "paper",
    BAD: "bad",
    CROWD: "crowd",
    IDLE: "idle",
}
# Told apart with any colour vision (lightness differs too), white text is legible on all of them.
ACCOUNT_COLOURS = ("#2f6fb8", "#b3560f", "#0b7a6f", "#7a4fb5", "#a8326b", "#5b6470")
DARK |= dict(
    zip(
        ACCOUNT_COLOURS,
        ("#4a8bd6", "#cc6a20", "#17927f", "#9872d3", "#cb5490", "#7d8794"),
        strict=True,
    )
)
VARIABLES |= {colour: f"account-{number}" for number, colour in enumerate(ACCOUNT_COLOURS)}
