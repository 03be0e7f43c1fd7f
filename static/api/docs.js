// Starts Swagger UI on our own schema. Nothing is fetched from elsewhere (no validator badge), a
// token that was typed in is not kept after the page is closed.
(function () {
  "use strict";
  const box = document.getElementById("swagger-ui");
  const root = document.documentElement;
  root.classList.toggle("dark-mode", root.dataset.theme === "dark");
  window.SwaggerUIBundle({
    url: box.dataset.schema,
    domNode: box,
    presets: [window.SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    deepLinking: true,
    docExpansion: "none",
    defaultModelsExpandDepth: 0,
    persistAuthorization: false,
    validatorUrl: null,
    requestInterceptor: function (request) {
      // A signed-in browser acts with its session; unsafe requests then need the CSRF token.
      if (!["GET", "HEAD"].includes((request.method || "GET").toUpperCase())) {
        request.headers["X-CSRFToken"] = box.dataset.csrf;
      }
      return request;
    },
  });
})();
