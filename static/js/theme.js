// Runs before the first paint: a person's choice is already on <html>, else the system decides.
(function () {
  var root = document.documentElement;
  root.classList.add("js");
  if (!root.dataset.theme) {
    root.dataset.themeSystem = "1";
    root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
})();
