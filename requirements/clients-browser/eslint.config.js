import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    ignores: ["**/*.d.ts"],
  },
  {
    languageOptions: { globals: { ...globals.browser, uPlot: "readonly" } },
    rules: {
      "array-callback-return": "error",
      "complexity": ["error", 20],
      "default-param-last": "error",
      "eqeqeq": "error",
      "max-depth": ["error", 3],
      "max-lines": ["error", 300],
      "max-lines-per-function": ["error", 80],
      "no-alert": "error",
      "no-console": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-param-reassign": "error",
      "no-shadow": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "error",
    },
  },
];
