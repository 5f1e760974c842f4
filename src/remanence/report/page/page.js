"use strict";
(() => {
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const plots = [...document.querySelectorAll(".plot")];
  const coarse = matchMedia("(pointer: coarse)").matches;
  const PRINTED = 660; // width of a printed page in pixels

  // Theme: follows the system until the user chooses one.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const remembered = () => { try { return localStorage.getItem("remanence-theme"); } catch (error) { return null; } };
  const theme = () => root.dataset.theme;
  function show(name) {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} theme`);
    for (const legend of Object.keys(figures)) paintLegend(legend);
    for (const plot of plots) if (plot.dataset.drawn) redraw(plot);
  }
  button.addEventListener("click", () => {
    const name = theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem("remanence-theme", name); } catch (error) { /* not remembered then */ }
    show(name);
  });
  system.addEventListener("change", () => { if (!remembered()) show(system.matches ? "dark" : "light"); });

  // Filter: shows the experiments that contain all words. Pages without experiments have no filter.
  const filter = document.getElementById("filter");
  const sections = [...document.querySelectorAll(".experiment")];
  const rows = new Map([...document.querySelectorAll("[data-section]")].map((row) => [row.dataset.section, row]));
  function choose() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const section of sections) {
      const fits = words.every((word) => section.dataset.words.includes(word));
      section.hidden = !fits;
      rows.get(section.id).hidden = !fits;
      shown += fits;
    }
    document.getElementById("nothing").hidden = shown > 0;
  }
  filter?.addEventListener("input", choose);

  // plotly.js is compressed in the page and unpacked once, for the first visible figure.
  let program = null;
  function unpack() {
    program ??= (async () => {
      const bytes = Uint8Array.from(atob(document.getElementById("program").textContent), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script);
    })();
    return program;
  }

  const hidden = new Map(Object.keys(figures).map((name) => [name, new Set()]));
  function faded(colour, share) {
    const part = (at) => parseInt(colour.slice(at, at + 2), 16);
    return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${share})`;
  }
  function coloured(trace, figure, look) {
    if (!trace.meta) return { ...trace, colorbar: { ...trace.colorbar, tickcolor: look.quiet } };
    const colour = trace.meta.colours[theme()];
    const painted = { ...trace, visible: !hidden.get(figure).has(trace.meta.series), marker: { ...trace.marker, color: colour } };
    if (trace.type !== "bar") painted.line = { ...trace.line, color: colour };
    if (trace.fill) painted.fillcolor = faded(colour, trace.meta.band ? 0.18 : 0.5);
    if (trace.error_y) painted.error_y = { ...trace.error_y, color: trace.type === "bar" ? look.ink : colour };
    return painted;
  }
  // Log axes over one to three decades get ticks at 1, 2 and 5: all digits are too many, powers of ten too few.
  function logarithmic(data, side) {
    const values = data.flatMap((trace) => trace[side] || []).filter((value) => value > 0);
    if (!values.length) return {};
    const decades = Math.log10(values.reduce((a, b) => Math.max(a, b)) / values.reduce((a, b) => Math.min(a, b)));
    return { tickformat: "~g", ...(decades > 0.7 && decades < 3 ? { dtick: "D2" } : { nticks: 6 }) };
  }
  function laidOut(plot, data, layout, look) {
    const axis = (own, side) => ({
      automargin: true, gridcolor: look.grid, zerolinecolor: look.grid, linecolor: look.quiet, showline: true, ticks: "outside",
      tickcolor: look.quiet, separatethousands: true, ...(own.type === "log" ? logarithmic(data, side) : {}), ...own,
      title: { ...own.title, standoff: 8, font: { size: 12 } },
    });
    return {
      ...layout,
      xaxis: axis(layout.xaxis, "x"),
      yaxis: axis(layout.yaxis, "y"),
      shapes: layout.shapes.map((one) => ({ ...one, line: { ...one.line, color: look.quiet } })),
      annotations: layout.annotations.map((one) => ({ ...one, font: { ...one.font, color: look.quiet } })),
      width: plot.dataset.width ? Number(plot.dataset.width) : undefined,
      height: plot.dataset.width ? 280 : undefined,
      autosize: !plot.dataset.width,
      paper_bgcolor: "rgba(0, 0, 0, 0)", plot_bgcolor: "rgba(0, 0, 0, 0)",
      font: { color: look.ink, size: 12, family: getComputedStyle(document.body).fontFamily },
      hoverlabel: { align: "left", bgcolor: theme() === "dark" ? "#2a2f37" : "#ffffff", font: { color: look.ink } },
      hovermode: "closest", showlegend: false,
      modebar: { bgcolor: "rgba(0, 0, 0, 0)", color: faded(look.ink, 0.5), activecolor: look.ink, orientation: "h" },
      // On touch screens, dragging scrolls the page; the buttons above the figure zoom.
      dragmode: coarse ? false : "zoom",
    };
  }
  const CONFIG = {
    displaylogo: false, responsive: true, showTips: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg", filename: "remanence" },
  };
  // Keep the zoom when the theme changes.
  function kept(plot) {
    const found = {};
    for (const name of ["xaxis", "yaxis"]) {
      const now = plot._fullLayout?.[name];
      if (now && plot.dataset.zoomed) found[name] = { range: [...now.range], autorange: false };
    }
    return found;
  }
  function redraw(plot) {
    const { data, layout } = figures[plot.dataset.figure].panels[plot.dataset.panel];
    const look = themes[theme()];
    const result = laidOut(plot, data, layout, look);
    for (const [name, range] of Object.entries(kept(plot))) Object.assign(result[name], range);
    return Plotly.react(plot, data.map((trace) => coloured(trace, plot.dataset.figure, look)), result, CONFIG);
  }
  async function draw(plot) {
    if (plot.dataset.drawn) return;
    try {
      await unpack();
      if (plot.dataset.drawn) return;
      plot.dataset.drawn = "yes";
      await redraw(plot);
      plot.on("plotly_relayout", (change) => {
        const names = Object.keys(change);
        if (names.some((name) => name.includes(".range"))) plot.dataset.zoomed = "yes";
        if (names.some((name) => name.includes("autorange"))) delete plot.dataset.zoomed;
      });
      plot.dataset.ready = "yes";
    } catch (error) {
      delete plot.dataset.drawn;
      plot.textContent = `This figure cannot be drawn: ${error.message}. A browser from 2023 or later is required.`;
    }
  }

  // One legend for all panels of a figure; an entry shows or hides its series in all of them.
  function paintLegend(name) {
    const legend = document.querySelector(`#${CSS.escape(name)} .legend`);
    if (!legend) return;
    legend.replaceChildren(...figures[name].legend.map((entry) => {
      const item = document.createElement("button");
      item.type = "button";
      item.setAttribute("aria-pressed", String(!hidden.get(name).has(entry.name)));
      const line = document.createElement("i");
      line.style.borderTopColor = entry.colours[theme()];
      line.classList.toggle("dashed", entry.dashed);
      item.append(line, entry.name);
      item.addEventListener("click", () => {
        const names = hidden.get(name);
        if (!names.delete(entry.name)) names.add(entry.name);
        item.setAttribute("aria-pressed", String(!names.has(entry.name)));
        for (const plot of plots) if (plot.dataset.figure === name && plot.dataset.drawn) redraw(plot);
      });
      return item;
    }));
  }

  show(remembered() || (system.matches ? "dark" : "light"));

  // Only visible figures are drawn: a page with a hundred figures opens as fast as one with a single figure.
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "400px" });
  for (const plot of plots) watcher.observe(plot);

  // Printing: light theme, all details open, figures as wide as the paper.
  let before = null;
  addEventListener("beforeprint", () => {
    if (before) return;
    before = { theme: theme(), closed: [...document.querySelectorAll("details:not([open]):not(.configurations)")] };
    for (const one of before.closed) one.open = true;
    root.dataset.theme = "light";
    for (const plot of plots) {
      const columns = Number(getComputedStyle(plot.closest(".panels")).getPropertyValue("--columns")) || 1;
      plot.dataset.width = columns > 1 ? Math.floor(PRINTED / 2) : PRINTED;
      if (plot.dataset.drawn) redraw(plot);
      else if (window.Plotly) draw(plot);
    }
    for (const name of Object.keys(figures)) paintLegend(name);
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    for (const one of before.closed) one.open = false;
    for (const plot of plots) delete plot.dataset.width;
    show(before.theme);
    before = null;
  });
  // Printing cannot wait for plotly.js to be unpacked, so unpack it when the browser is idle.
  if (plots.length) (window.requestIdleCallback || setTimeout)(() => unpack().catch(() => {}));
})();
