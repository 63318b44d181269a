// Prints datasets as jsfive reads them: jsfive.mjs FILE PATH... as JSON, shape and values by path.

import { readFileSync } from "node:fs";
import { File } from "jsfive";

const [file, ...paths] = process.argv.slice(2);
const bytes = readFileSync(file);
const hdf5 = new File(bytes.buffer, file);
const found = {};
for (const path of paths) {
  const dataset = hdf5.get(path);
  const values = Array.from([dataset.value].flat(), (value) =>
    // JSON has neither NaN nor infinity.
    typeof value === "number" && !Number.isFinite(value) ? String(value) : value,
  );
  found[path] = [dataset.shape, values];
}
console.log(JSON.stringify(found));
