// Runs the tool that the first argument names with the other ones, and reports an error without the frames of the tool.
// The tool does not say where a syntax error is: Node.js does.
import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { pathToFileURL } from "node:url";

process.on("uncaughtException", (error) => {
  const sources = readdirSync(".").filter((name) => name.endsWith(".js"));
  const complaints = sources.map((name) => {
    const check = ["--input-type=module", "--check", "-"];
    const { status, stderr } = spawnSync(process.execPath, check, { input: readFileSync(name) });
    return status === 0 ? "" : stderr.toString().split("\n    at ")[0].replace("[stdin]", name);
  });
  console.error(complaints.find((complaint) => complaint !== "") ?? error?.message ?? error);
  process.exit(1);
});

// The tool takes the arguments of `node --eval` as they are, without a script before them.
const [tool] = process.argv.splice(1, 1);
await import(pathToFileURL(tool));
