// What the search of a built site finds: `node docs/search.mjs docs/_build/html`.
//
// It runs the site's own script on its own index, prints the first three results for the words that
// newcomers use, and fails where the first is not the page of the guide.

import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const GUIDE = {
  rank: ["rank"],
  "R-hat": ["chains"],
  probability: ["first-fit", "report", "models", "missing", "your-data", "ratings"],
  missing: ["missing"],
  GPU: ["accelerators"],
  cite: ["citing"],
  "new rows": ["your-data", "missing", "first-fit", "models", "ratings"],
  names: ["your-data"],
  CSV: ["your-data"],
  compare: ["rank", "coming-from"],
};

const site = process.argv[2];
const read = (name) => fs.readFileSync(path.join(site, name), "utf-8");
const element = () => ({ addEventListener() {}, dataset: {}, children: [], removeChild() {} });
const context = vm.createContext({
  console,
  URLSearchParams,
  document: { ...element(), getElementById: element, documentElement: element() },
  DOCUMENTATION_OPTIONS: { URL_ROOT: "" },
  SPHINX_HIGHLIGHT_ENABLED: false,
  _ready() {},
  _: (text) => text,
});
const loaded = [...read("search.html").matchAll(/<script[^>]* src="([^"?]+)/g)].map(([, name]) => name);
const scripts = loaded.filter((name) => /language_data|stemmer|searchtools|searchindex/.test(name));
context.window = Object.assign(context, { location: { search: "" } });
scripts.forEach((name) => vm.runInContext(read(name), context, name));
const Search = vm.runInContext("Search", context);

let wrong = 0;
for (const [words, pages] of Object.entries(GUIDE)) {
  const query = Search._parseQuery(words);
  const found = Search._performSearch(...query).reverse();
  const first = found.slice(0, 3).map(([page, title]) => `${page} (${title})`);
  const right = pages.includes(found[0]?.[0]);
  wrong += !right;
  console.log(`${right ? "" : "WRONG "}${words}: ${first.join(", ")}`);
}
process.exitCode = wrong ? 1 : 0;
