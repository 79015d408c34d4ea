"use strict";
// Shows the document that the page carries. Read from the end: `show` draws the view that the address names.
// Texts enter as text nodes, never as markup.

const data = JSON.parse(document.getElementById("document").textContent);
const main = document.getElementById("content");

// -- What there is

/** One form of checkpointing in one report; its place is "torch/cpu/non-reentrant". */
const implementations = Object.entries(data.reports).flatMap(([of, report]) =>
  Object.keys(report.adapter.variants).map((variant) => ({
    of,
    variant,
    report,
    place: `${of}/${variant}`,
    name: `${report.adapter.name} ${variant}, ${report.run.device}`,
    results: data.results[of][variant],
  })),
);
const clauses = Object.values(data.clauses);
const chapters = Object.keys(data.chapters);
const SIGNS = Object.fromEntries(Object.values(data.verdicts).map(({ kind, mark }) => [kind, mark]));

const kindOf = (verdict) => data.verdicts[verdict].kind;
const isA = (kinds, clause, { results }) => clause.id in results && kinds.includes(kindOf(results[clause.id][0]));
const isBroken = (clause, implementation) => isA(["broken"], clause, implementation);
const isNotGood = (clause, implementation) => isA(["broken", "other"], clause, implementation);
const casesOf = (result) => result[1].map(([parameters, outcome]) => ({ parameters, ...data.outcomes[outcome] }));

// -- Addresses: #/chapter/STOP/torch/cpu/non-reentrant?level=MUST

const FILTERS = ["q", "level", "profile", "verdict", "in"];
const isFiltering = (filters) => FILTERS.some((name) => filters[name]);

function address(path, filters = {}) {
  const query = new URLSearchParams(FILTERS.filter((name) => filters[name]).map((name) => [name, filters[name]]));
  const parts = path.flatMap((part) => part.split("/")).map(encodeURIComponent);
  return `#/${parts.join("/")}${query.size ? `?${query}` : ""}`;
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const filters = Object.fromEntries(new URLSearchParams(query));
  try {
    return { path: path.split("/").filter(Boolean).map(decodeURIComponent), filters };
  } catch {
    return { path: [path], filters }; // as it stands: it leads nowhere
  }
}

// -- Filters

function textOf(clause, result) {
  const said = casesOf(result).flatMap((c) => [c.parameters, c.label, c.exception, c.signal, c.message, c.reason]);
  const stated = [clause.id, clause.sentence, clause.not_promised, clause.source, clause.test];
  return [...stated, ...clause.witnesses, ...clause.tests, ...said].join("\n").toLowerCase();
}

function includesAll(words, clause, result) {
  const text = words.length ? textOf(clause, result) : "";
  return words.every((word) => text.includes(word));
}

/** Implementation -> clause -> result, of what matches the filters. */
function matching({ q = "", level, profile, verdict, in: place }) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (clause, result) =>
    result &&
    (!level || level === clause.level) &&
    (!profile || profile === (clause.profile ?? "none")) &&
    (!verdict || verdict === result[0] || verdict === kindOf(result[0])) &&
    includesAll(words, clause, result);
  const found = new Map();
  for (const implementation of implementations) {
    if (place && !`${implementation.place}/`.startsWith(`${place}/`)) continue;
    const chosen = clauses.filter((clause) => matches(clause, implementation.results[clause.id]));
    if (chosen.length) found.set(implementation, new Map(chosen.map((c) => [c.id, implementation.results[c.id]])));
  }
  return found;
}

// -- Pieces

/** Makes elements: `h.p({ class: "small" }, text, child)`. Attributes and children may be left out as null or false. */
const h = new Proxy({}, {
  get: (_, tag) => (...content) => {
    const element = document.createElement(tag);
    const isGiven = (value) => value !== null && value !== undefined && value !== false;
    if (isGiven(content[0]) && Object.getPrototypeOf(content[0]) === Object.prototype) {
      const attributes = Object.entries(content.shift()).filter(([, value]) => isGiven(value));
      for (const [name, value] of attributes) element.setAttribute(name, value);
    }
    element.append(...content.flat(Infinity).filter(isGiven));
    return element;
  },
});

/** A text that an implementation chose; its direction of writing stays its own. */
const said = (...text) => h.bdi(text);
const link = (href, ...content) => h.a({ href }, content);
const entry = (title, ...content) => [h.dt(title), h.dd(content)];
const joined = (items) => items.flatMap((item, index) => (index ? [", ", item] : [item]));
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const sign = (kind) => h.span({ class: "sign", "aria-hidden": "true" }, SIGNS[kind]);
const marked = (kind, words) => h.span({ class: `verdict ${kind}` }, sign(kind), " ", words);
const verdict = (name) => marked(kindOf(name), data.verdicts[name].word);
const tags = (clause) => [clause.level, clause.profile].filter(Boolean).map((text) => h.span({ class: "tag" }, text));
const toClause = (clause, text = clause.id) => link(address(["clause", clause.id]), text);
const toReport = (implementation, text) => link(address(["implementation", implementation.of]), text);

/** A text of the suite's: `code`, and owner/project#12 as a link to that report. */
function prose(text) {
  return text.split(/(`[^`]*`|(?<![\w/])[\w.-]+\/[\w.-]+#\d+)/).map((part, index) => {
    if (index % 2 === 0) return part;
    if (part.startsWith("`")) return h.code(part.slice(1, -1));
    const [project, number] = part.split("#");
    return link(`https://github.com/${project}/issues/${number}`, part);
  });
}

function opening(isOpen, summary, ...content) {
  return h.details({ open: isOpen && "" }, h.summary(summary), h.div({ class: "body" }, content));
}

function openAll() {
  for (const details of main.querySelectorAll("details")) details.open = true;
}

function button(text, act) {
  const made = h.button({ type: "button" }, text);
  made.addEventListener("click", act);
  return made;
}

const openingAll = () => button("Open all", openAll);
const boxed = (label, table) => h.div({ class: "box", role: "region", "aria-label": label, tabindex: 0 }, table);
const onward = (...links) => h.nav({ class: "onward", "aria-label": "Onward" }, links);

// -- Counts

/** How many clauses passed, are applicable and declared; and what is to be said of them: the worst kind, in words. */
function count(verdicts) {
  const by = Object.keys(data.verdicts).map((name) => [name, verdicts.filter((other) => other === name).length]);
  const of = (kind) => by.filter(([name]) => kindOf(name) === kind).reduce((sum, [, n]) => sum + n, 0);
  const words = (kind) => {
    const those = by.filter(([name, n]) => n && kindOf(name) === kind);
    return those.map(([name, n]) => `${n} ${data.verdicts[name].word}`).join(", ");
  };
  const applicable = verdicts.length - of("absent");
  const judged =
    of("broken") ? ["broken", words("broken")]
    : of("other") ? ["other", words("other")]
    : !applicable ? ["absent", "not applicable"]
    : of("declined") ? ["declined", `${of("declined")} declined`]
    : ["passed", "all passed"];
  return { of, judged, declared: verdicts.length, numbers: `${of("passed")} / ${applicable} / ${verdicts.length}` };
}

const verdictsOf = (results, chapter) =>
  [...results].filter(([id]) => !chapter || data.clauses[id].chapter === chapter).map(([, [name]]) => name);

// -- The overview

function overview(_, filters) {
  const results = h.div();
  const form = filterForm(filters, () => {
    const chosen = Object.fromEntries(new FormData(form));
    history.replaceState(history.state, "", address([], chosen));
    fill(results, chosen);
  });
  fill(results, filters);
  const broken = clauses.filter((clause) => implementations.some((i) => isBroken(clause, i)));
  return [
    "What each implementation keeps and breaks",
    h.p(
      { class: "lead" },
      "Activation checkpointing drops the intermediate values of a region after forward and executes the region again ",
      `during backward. ${plural(clauses.length, "clause")} say what that must not change, and were tried on `,
      `${plural(implementations.length, "implementation")}; `,
      `${plural(broken.length, "clause")} are broken by at least one.`,
    ),
    opening(
      false,
      "How to read this page",
      h.p(
        "Three numbers count clauses: ",
        h.b("passed / applicable / declared"),
        ". Declared are all; applicable are those that say something about the host. A clause counts with its worst ",
        "case. MUST, SHOULD and MAY are those of RFC 2119. A profile is kept if all its MUST clauses pass.",
      ),
      h.dl(Object.entries(data.verdicts).map(([name, { means }]) => entry(verdict(name), means))),
    ),
    form,
    status,
    results,
  ];
}

function filterForm(filters, update) {
  const field = (name, title, ...groups) => {
    const option = ([value, text]) => h.option({ value, selected: value === filters[name] && "" }, text);
    const options = groups.map(([label, values]) => h.optgroup({ label }, values.map(option)));
    return h.label(title, h.select({ name }, h.option({ value: "" }, "any"), options));
  };
  const search = h.input({ type: "search", name: "q", value: filters.q });
  const values = (key) => [...new Set(clauses.map((c) => c[key] ?? "none"))].map((value) => [value, value]);
  const seen = new Set(implementations.flatMap((i) => Object.values(i.results).map(([name]) => name)));
  const verdicts = Object.entries(data.verdicts).filter(([name]) => seen.has(name));
  const kinds = [["broken", "any that is broken"], ["declined", "any that is declined"]];
  const adapters = [...Map.groupBy(implementations, (i) => i.of.split("/")[0])];
  const form = h.form(
    { role: "search", "aria-label": "Filters" },
    h.label({ class: "search" }, "Search clauses, labels, messages", search),
    field("level", "Level", ["Level", values("level")]),
    field("profile", "Profile", ["Profile", values("profile")]),
    field("verdict", "Verdict", ["Several", kinds], ["One", verdicts.map(([name, { word }]) => [name, word])]),
    field(
      "in",
      "Implementation",
      ["All of an adapter", adapters.map(([place, [first]]) => [place, first.report.adapter.name])],
      ["One", implementations.map((i) => [i.place, i.name])],
    ),
  );
  let timer;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(update, 120);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  return form;
}

const status = h.p({ role: "status", class: "quiet" });

/** The overview below the filters. */
function fill(results, filters) {
  const found = matching(filters);
  const ids = new Set([...found.values()].flatMap((r) => [...r.keys()]));
  const total = [...found.values()].reduce((sum, r) => sum + r.size, 0);
  const of = (n, all, noun) => `${n} of ${plural(all, noun)}`;
  status.replaceChildren(
    `${plural(total, "result")}: ${of(ids.size, clauses.length, "clause")}, `,
    `${of(found.size, implementations.length, "implementation")}. `,
    isFiltering(filters) ? link("#/", "Clear the filters") : "",
  );
  results.replaceChildren();
  if (isFiltering(filters) && ids.size) {
    results.append(h.h2("Clauses"), clauseList(clauses.filter((c) => ids.has(c.id)), found, 8));
  }
  if (ids.size) results.append(h.h2("Implementations"), summary(found), matrix(found, filters));
  if (data.left_out.length) results.append(h.h2("Left out"), h.ul(data.left_out.map((line) => h.li(said(line)))));
}

/** A row an implementation. On a narrow screen rows are laid out as blocks, which would cost them their roles. */
function summary(found) {
  const row = ([implementation, results]) => {
    const { variant, report } = implementation;
    const { of, judged, numbers } = count(verdictsOf(results));
    const bar = ["passed", "broken", "other", "declined"].map((kind) => {
      const part = h.i({ class: kind });
      part.style.flexGrow = of(kind);
      return part;
    });
    const kept = Object.keys(report.profiles[variant]).filter((name) => report.profiles[variant][name]);
    return h.tr(
      { role: "row" },
      h.th(
        { scope: "row", role: "rowheader" },
        toReport(implementation, said(`${report.adapter.name} ${variant}`)),
        h.div({ class: "quiet small" }, said(`${report.adapter.version}, ${report.run.device}`)),
      ),
      h.td(
        { role: "cell" },
        h.div({ class: "bar", "aria-hidden": "true" }, bar),
        h.div(
          { class: "head" },
          numbers,
          ["broken", "other"].includes(judged[0]) && marked(...judged),
          of("declined") > 0 && marked("declined", `${of("declined")} declined`),
        ),
      ),
      h.td({ role: "cell", class: "small kept" }, kept.join(", ") || "none"),
    );
  };
  const titles = ["Implementation", "Passed / applicable / declared", "Profiles kept"];
  const heads = titles.map((title) => h.th({ scope: "col", role: "columnheader" }, title));
  return h.table(
    { class: "summary", role: "table" },
    h.thead({ role: "rowgroup" }, h.tr({ role: "row" }, heads)),
    h.tbody({ role: "rowgroup" }, [...found].map(row)),
  );
}

/** Chapters by implementations. A wide one scrolls in its box, both ways, so that its head stays in view. */
function matrix(found, filters = {}) {
  const columns = [...found.keys()];
  const shown = chapters.filter((chapter) => columns.some((i) => verdictsOf(found.get(i), chapter).length));
  const groups = Map.groupBy(columns, (i) => `${i.report.adapter.name} ${i.report.adapter.version}`);
  const kept = { ...filters, in: "" };
  const cell = (implementation, chapter) => {
    const { declared, numbers, judged: [kind, words] } = count(verdictsOf(found.get(implementation), chapter));
    if (!declared) return h.td();
    const path = chapter ? ["chapter", chapter, implementation.place] : ["implementation", implementation.of];
    return h.td(
      h.a(
        { class: `cell ${kind}`, href: address(path, chapter ? kept : {}) },
        h.span({ class: "unseen" }, `${chapter ?? "All chapters"}, `, said(implementation.name), ": "),
        h.span({ class: "numbers" }, numbers),
        sign(kind),
        ` ${words}`,
      ),
    );
  };
  const title = (chapter) => [
    link(address(["chapter", chapter], kept), chapter),
    h.div({ class: "quiet" }, data.chapters[chapter]),
  ];
  const row = (chapter) =>
    h.tr(
      { class: !chapter && "total" },
      h.th({ scope: "row" }, chapter ? title(chapter) : "All chapters"),
      columns.map((implementation) => cell(implementation, chapter)),
    );
  const group = ([name, { length }]) => h.th({ class: "group", colspan: length, scope: "colgroup" }, said(name));
  const column = (implementation) =>
    h.th(
      { scope: "col" },
      toReport(implementation, said(implementation.variant)),
      h.div({ class: "quiet" }, said(implementation.report.run.device)),
    );
  const head = [
    h.tr(h.th({ class: "corner", rowspan: 2, scope: "col" }, "Chapter"), [...groups].map(group)),
    h.tr(columns.map(column)),
  ];
  return h.section(
    { class: columns.length > 4 && "wide" },
    h.h2("Chapters"),
    boxed("Chapters", h.table({ class: "matrix" }, h.thead(head), h.tbody([undefined, ...shown].map(row)))),
  );
}

// -- Clauses and cases

/** Clauses, and by verdict who has it; at first only so many as `limit`. */
function clauseList(chosen, found, limit = Infinity) {
  const item = (clause) => {
    const having = [...found].filter(([, results]) => results.has(clause.id)).map(([implementation]) => implementation);
    const by = Map.groupBy(having, (implementation) => implementation.results[clause.id][0]);
    const lines = Object.keys(data.verdicts).filter((name) => by.has(name)).map((name) => {
      const who = by.get(name).map((i) => link(address(["clause", clause.id, i.place]), said(i.name)));
      return h.p({ class: "small who" }, verdict(name), " ", joined(who));
    });
    return h.li(
      h.div({ class: "head" }, h.b(toClause(clause)), tags(clause)),
      h.p({ class: "sentence" }, prose(clause.sentence)),
      lines,
    );
  };
  const list = h.ul({ class: "clauses" }, chosen.slice(0, limit).map(item));
  const more = button(`Show all ${chosen.length}`, () => {
    const rest = chosen.slice(limit).map(item);
    list.append(...rest);
    more.remove();
    rest[0].querySelector("a").focus();
  });
  return h.div(list, chosen.length > limit && more);
}

const inShort = (clause, implementation) => [
  h.b(clause.id),
  verdict(implementation.results[clause.id][0]),
  h.span({ class: "sentence" }, prose(clause.sentence)),
  tags(clause),
];

/** What a clause says besides its sentence. */
function terms(clause) {
  const meanings = (names, of) => h.ul(names.map((name) => h.li(h.code(name), " ", data[of][name])));
  const { not_promised, tests, needs, source, witnesses, chapter, test } = clause;
  return h.dl(
    not_promised && entry("Not promised", prose(not_promised)),
    entry("Binds", tests.length ? ["who declares", meanings(tests, "capabilities")] : "every implementation"),
    needs.length > 0 && entry("Needs", "a host with", meanings(needs, "facts")),
    entry("Source", prose(source)),
    entry("Witnesses", witnesses.length ? ["seen failing on ", joined(witnesses.map((name) => h.code(name)))] : "none"),
    entry("Test", h.code(`test_${chapter.toLowerCase()}.py::${test}`)),
  );
}

/** What came of a clause's cases on an implementation. */
function cases(clause, implementation) {
  return casesOf(implementation.results[clause.id]).map((found) => {
    const id = `${clause.id}[${[implementation.variant, found.parameters].filter(Boolean).join("-")}]`;
    const { label, exception, signal, phase, message, reason, reproducer } = found;
    const raised = exception || signal;
    const how = [label && h.div(said(label)), raised && h.code(raised), phase && ` in ${phase}`];
    const runs = [...Map.groupBy(found.evidence ?? [], JSON.stringify).values()];
    return h.section(
      { class: `case ${kindOf(found.verdict)}`, "aria-label": id },
      h.h4(said(id)),
      h.dl(
        entry("Verdict", verdict(found.verdict), h.span({ class: "quiet" }, `, ${found.expectation}`)),
        how.some(Boolean) && entry("How", how),
        message && message !== label && entry("Message", h.pre(said(message))),
        reason && entry("Reason", said(prose(reason))),
        found.link && entry("Link", link(found.link, found.link)),
        reproducer && entry("Reproducer", link(encodeURI(`${implementation.of}/${reproducer}`), said(reproducer))),
        runs.length > 0 && entry("Evidence", runs.map((alike) => evidence(alike, message))),
      ),
    );
  });
}

/** Runs of a program that were alike, in a table; or in words what came of many drawn programs. */
function evidence([run, ...alike], message) {
  if ("examples" in run) {
    const { examples, discarded, replays, seed, program, primals = [] } = run;
    const given = primals.map(({ shape, dtype, values }) => `\n# ${dtype}[${shape.join(", ")}] = ${values.join(", ")}`);
    return [
      h.div(`${plural(examples, "program")} tried, ${discarded} discarded, ${plural(replays, "replay")} seen`),
      Number.isInteger(seed) && h.div(`seed ${seed}`),
      program && h.div("The smallest that breaks the clause, and what it is given:", h.pre(said(program, ...given))),
    ];
  }
  const { replays, plain, checkpointed, difference, error } = run;
  const probes = new Set([plain, checkpointed].flatMap((o) => [o.forward, o.backward].flatMap(Object.keys)));
  const rows = [...probes].map((probe) => [
    ["executions of ", said(probe)],
    ...[plain, checkpointed].flatMap((o) => [o.forward[probe] ?? 0, o.backward[probe] ?? 0]),
  ]);
  if (plain.held || checkpointed.held) {
    const held = [plain, checkpointed].flatMap((o) => [o.held?.after_forward, o.held?.after_backward]);
    rows.push(["bytes held after", ...held.map((bytes) => bytes?.toLocaleString("en") ?? "–")]);
  }
  const which = ["plain", "checkpointed"].map((name) => h.th({ colspan: 2, scope: "colgroup" }, name));
  const when = ["forward", "backward", "forward", "backward"].map((name) => h.th({ scope: "col" }, name));
  const row = ([name, ...values]) => h.tr(h.th({ scope: "row" }, name), values.map((value) => h.td(`${value}`)));
  const runs = alike.length > 0 && `, in each of ${alike.length + 1} runs`;
  return [
    h.div(
      { class: "evidence" },
      h.table(
        h.caption(`${plural(replays, "replay")} in backward`, runs),
        h.thead(h.tr(h.td({ rowspan: 2 }), which), h.tr(when)),
        h.tbody(rows.map(row)),
      ),
    ),
    difference && difference !== message && h.pre(said(difference)),
    error && h.div({ class: "small" }, "ended by ", h.code(error.type), error.phase && ` in ${error.phase}`),
  ];
}

// -- A clause, a chapter, a report

function clause([id, ...place]) {
  const found = clauses.find((c) => c.id === id);
  if (!found) return missing(`clause ${id}`);
  const [before, after] = [-1, 1].map((step) => clauses[clauses.indexOf(found) + step]);
  const isWanted = (implementation) => implementation.place === place.join("/");
  const having = implementations.filter((implementation) => implementation.results[id]);
  const item = (i) =>
    opening(
      isWanted(i),
      [verdict(i.results[id][0]), h.b(said(i.name)), h.span({ class: "quiet small" }, said(i.report.adapter.version))],
      cases(found, i),
      toReport(i, "all about this implementation"),
    );
  return [
    id,
    h.div(
      { class: "head" },
      tags(found),
      link(address(["chapter", found.chapter]), `chapter ${found.chapter}: ${data.chapters[found.chapter]}`),
    ),
    h.p({ class: "lead" }, prose(found.sentence)),
    terms(found),
    h.h2("Results"),
    openingAll(),
    having.sort((a, b) => isWanted(b) - isWanted(a)).map(item),
    onward(before && toClause(before, `← ${before.id}`), after && toClause(after, `${after.id} →`)),
  ];
}

function chapter([name, ...place], filters) {
  const all = clauses.filter((c) => c.chapter === name);
  if (!all.length) return missing(`chapter ${name}`);
  const implementation = implementations.find((i) => i.place === place.join("/"));
  if (place.length && !implementation) return missing(`implementation ${place.join("/")}`);
  const found = matching(place.length ? { ...filters, in: implementation.place } : filters);
  const chosen = all.filter((c) => [...found.values()].some((results) => results.has(c.id)));
  const [before, after] = [-1, 1].map((step) => chapters[chapters.indexOf(name) + step]);
  const to = (other, text) => link(address(["chapter", other, ...place], filters), text);
  const item = (c) =>
    opening(
      isNotGood(c, implementation),
      inShort(c, implementation),
      terms(c),
      cases(c, implementation),
      toClause(c, `${c.id} on all implementations`),
    );
  return [
    `${name}: ${data.chapters[name]}`,
    implementation && h.p({ class: "lead" }, toReport(implementation, said(implementation.name))),
    isFiltering(filters) &&
      h.p(
        { class: "quiet" },
        `Shown are the ${chosen.length} of ${plural(all.length, "clause")} that match the filters. `,
        link(address(["chapter", name, ...place]), "Show all"),
      ),
    implementation ? [openingAll(), chosen.map(item)] : clauseList(chosen, found),
    onward(
      implementation && link(address(["chapter", name], filters), "this chapter on all implementations"),
      before && to(before, `← ${before}`),
      after && to(after, `${after} →`),
    ),
  ];
}

function implementation(place) {
  const of = place.join("/");
  const here = implementations.filter((i) => i.of === of);
  if (!here.length) return missing(`report ${of}`);
  const { report } = here[0];
  const { adapter, run, suite, occasion, environment, profiles } = report;
  const either = (is, yes, no) => (is ? marked("passed", yes) : marked("absent", no));
  const isolation = occasion.isolated ? "each case in a worker process" : "without isolation";
  const fact = ([name, means]) => entry(either(adapter.host.facts.includes(name), "has", "has not"), means);
  return [
    `${adapter.name}, ${run.device}`,
    h.dl(
      entry("Version", said(adapter.version)),
      entry("Host", said(`${adapter.host.name} ${adapter.host.version}`)),
      entry("Environment", joined(Object.entries(environment).map((pair) => said(pair.join(" "))))),
      entry("Adapter", said(adapter.asked), adapter.sha256 && [", sha256 ", h.code(adapter.sha256)]),
      entry("Suite", `${suite.version}, revision ${suite.revision}`),
      occasion.git && entry("Commit", h.code(occasion.git)),
      entry("Run", `${report.started.slice(0, 10)}, ${isolation}`),
      entry("Outcome", run.good ? "as expected" : marked("other", "not as expected")),
      entry("File", link(encodeURI(`${of}/report.json`), "report.json")),
    ),
    matrix(new Map(here.map((i) => [i, new Map(Object.entries(i.results))]))),
    h.h2("Counts"),
    here.map((i) => counts(i.variant, report.counts[i.variant])),
    h.h2("Profiles"),
    byVariant("profile", here, Object.keys(profiles[here[0].variant]), (variant, name) =>
      either(profiles[variant][name], "kept", "not kept"),
    ),
    here.map((i) => [h.h2("What is broken: ", said(i.variant)), broken(i)]),
    h.h2("Capabilities"),
    byVariant("capability", here, Object.keys(data.capabilities), (variant, name) =>
      either(adapter.variants[variant].includes(name), "declared", "not declared"),
    ),
    h.h2("Host facts"),
    h.dl(Object.entries(data.facts).map(fact)),
  ];
}

/** Verdicts by level. */
function counts(variant, by) {
  const names = Object.keys(data.verdicts).filter((name) => Object.values(by).some((of) => of[name]));
  const row = (level) => h.tr(h.th({ scope: "row" }, level), names.map((name) => h.td(`${by[level][name] ?? 0}`)));
  const table = h.table(
    h.caption(said(variant)),
    h.thead(h.tr(h.th({ scope: "col" }, "level"), names.map((name) => h.th({ scope: "col" }, verdict(name))))),
    h.tbody(Object.keys(by).map(row)),
  );
  return boxed(`Counts of ${variant}`, table);
}

function byVariant(title, here, names, cell) {
  const means = (name) => data.capabilities[name] && h.div({ class: "quiet small" }, data.capabilities[name]);
  const row = (name) => h.tr(h.th({ scope: "row" }, name, means(name)), here.map((i) => h.td(cell(i.variant, name))));
  const table = h.table(
    h.thead(h.tr(h.th({ scope: "col" }, title), here.map((i) => h.th({ scope: "col" }, said(i.variant))))),
    h.tbody(names.map(row)),
  );
  return boxed(`By ${title}`, table);
}

function broken(implementation) {
  const found = clauses.filter((c) => isNotGood(c, implementation));
  const item = (c) =>
    opening(
      false,
      inShort(c, implementation),
      cases(c, implementation),
      link(address(["clause", c.id, implementation.place]), `all about ${c.id}`),
    );
  return found.length ? found.map(item) : h.p("Nothing.");
}

function missing(what) {
  return ["Not here", h.p("There is no ", said(what), " in these reports. ", link("#/", "What there is"))];
}

// -- The view that the address names

const VIEWS = { clause, chapter, implementation };

/** Each view returns its title and what stands below it. */
function show() {
  const { path: [name, ...path], filters } = route();
  const isKnown = name === undefined || Object.hasOwn(VIEWS, name);
  const view = isKnown ? (VIEWS[name] ?? overview) : () => missing(`page ${name}`);
  const [title, ...content] = view(path, filters);
  document.title = name === undefined ? title : `${title} – activation checkpointing`;
  main.replaceChildren(h.h1({ tabindex: -1 }, said(title)), ...content.flat(Infinity).filter(Boolean));
}

document.addEventListener("click", (event) => {
  const href = event.target.closest("a")?.getAttribute("href");
  if (href === "#content") {
    event.preventDefault();
    main.focus();
  } else if (href?.startsWith("#/")) {
    history.replaceState({ y: scrollY, href }, "");
  }
});

// Going on starts at the heading; going back leads to where the reader was.
history.scrollRestoration = "manual";
addEventListener("hashchange", () => {
  show();
  const { y, href } = history.state ?? {};
  const focused = (href && main.querySelector(`a[href="${CSS.escape(href)}"]`)) || main.querySelector("h1");
  focused.focus({ preventScroll: true });
  scrollTo(0, y ?? 0);
});

// On paper everything is open.
addEventListener("beforeprint", openAll);

show();
