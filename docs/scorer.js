// How the search of the site orders its results: the guide first, then the reference, then records.
"use strict";

const PLACES = [
  ["results/", 0.02],
  ["notebook/", 0.1],
  ["changelog", 0.05],
  ["contributing", 0.05],
  ["benchmarks", 0.1],
  ["measured", 0.2],
  ["api/", 0.1],
  ["samplers/", 0.1],
  ["reference/", 0.3],
];

var Scorer = {
  // A page whose title has the word is about it, unless it is of the reference.
  score: ([docname, , anchor, , score]) => {
    const place = PLACES.find(([start]) => docname.startsWith(start));
    return place === undefined ? 100 + score + (anchor ? 0 : 1) : place[1] * score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
