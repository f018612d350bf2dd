// Validates resources of the Prometheus operator against its schemas: a list in JSON on stdin, a list of errors on stdout.
// The packages are those of requirements/deploy, in the current folder.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = join(process.cwd(), "node_modules/@kubernetes-models/prometheus-operator");
const errors = [];
for (const resource of JSON.parse(readFileSync(0, "utf8"))) {
  const { [resource.kind]: Kind } = await import(pathToFileURL(join(folder, resource.apiVersion, `${resource.kind}.js`)));
  try {
    new Kind(resource).validate();
  } catch (error) {
    errors.push(`${resource.kind} ${resource.metadata?.name}: ${error.message}`);
  }
}
console.log(JSON.stringify(errors));
