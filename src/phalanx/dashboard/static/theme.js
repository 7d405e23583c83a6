// Before anything is drawn, so that the page does not flash in the other colours.
const chosen = localStorage.getItem("phalanx-theme");
if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
