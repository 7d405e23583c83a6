// Set the theme before the first paint, so that the page does not flash.
const chosen = localStorage.getItem("phalanx-theme");
if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
