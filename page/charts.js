/** Charts of the runs, drawn by uPlot. Curves of one chart are the same metric of several runs. */

import { element, fill, get, short } from './dom.js'

const HEIGHT = 220
const NUM_COLOURS = 8
/** Runs whose colours are equal differ in their dashes. */
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]]

/** The charts of one view: made once, then only given new points. */
export class Charts {
  #parent
  #charts = new Map()
  #wanted = []
  #chosen = []

  constructor(parent) {
    this.#parent = parent
    this.grid = element('div', { class: 'charts' })
    this.chooser = element('select', { id: 'more', onchange: () => this.#add() })
    const label = element('label', { for: 'more' }, 'Another metric ')
    fill(parent, this.grid, element('p', {}, label, this.chooser))
    this.resized = new ResizeObserver(() => this.#resize())
    this.resized.observe(this.grid)
  }

  /** Draws what the runs have now. `shown` are their ids. */
  async update(charts, runs, shown) {
    const names = [...new Set(runs.flatMap(({ series }) => series))]
    this.runs = runs
    this.#fillChooser(names)
    this.#wanted = [...standardNames(charts, names), ...this.#chosen]
    const query = [...this.#wanted.map(({ name }) => ['name', name]), ...shown.map((id) => ['run', id])]
    const { series } =
      this.#wanted.length > 0 && shown.length > 0 ? await get('/api/series', query) : { series: [] }
    for (const [index, { name, title }] of this.#wanted.entries()) {
      this.#draw(name, title, series[index]?.curves ?? [], shown)
    }
    if (this.#wanted.length > 0) this.grid.querySelector(':scope > p')?.remove()
    else fill(this.grid, element('p', {}, 'No step has been logged yet.'))
  }

  /** Draws again in the colours of the page, which has become light or dark. */
  recolour() {
    for (const [, chart] of this.#charts) chart.destroy()
  }

  close() {
    this.resized.disconnect()
    for (const [, chart] of this.#charts) chart.destroy()
  }

  #fillChooser(names) {
    if (this.chooser.options.length === names.length + 1) return
    const options = names.toSorted().map((name) => element('option', { value: name }, name))
    fill(this.chooser, element('option', { value: '' }, 'choose'), ...options)
  }

  #add() {
    const name = this.chooser.value
    if (name === '' || this.#wanted.some((chart) => chart.name === name)) return
    this.#chosen.push({ name, title: name })
    this.#parent.dispatchEvent(new CustomEvent('wanted'))
  }

  #draw(name, title, curves, shown) {
    const found = this.#charts.get(name)
    const data = aligned(curves)
    if (found && found.key === shown.join() && found.isOpen) {
      found.update(data)
      return
    }
    found?.remove()
    const chart = new Chart({
      name,
      title,
      curves,
      data,
      runs: this.runs,
      width: this.#width(),
      key: shown.join(),
    })
    this.#charts.set(name, chart)
    const index = this.#wanted.findIndex((wanted) => wanted.name === name)
    this.grid.insertBefore(chart.figure, this.grid.children[index] ?? null)
  }

  #width() {
    const style = getComputedStyle(this.grid)
    const columns = style.gridTemplateColumns.split(' ').length
    const gap = Number.parseFloat(style.columnGap) || 0
    return Math.max(240, Math.floor((this.grid.clientWidth - gap * (columns - 1)) / columns) - 18)
  }

  #resize() {
    const width = this.#width()
    for (const [, chart] of this.#charts) chart.resize(width)
  }
}

/** One chart with its title, legend and link. */
class Chart {
  isOpen = true

  constructor({ name, title, curves, data, runs, width, key }) {
    this.key = key
    this.shown = JSON.stringify(data)
    const place = element('div', {
      class: 'plot',
      tabindex: 0,
      role: 'img',
      'aria-label': `${title}: ${describe(curves, runs)}. Arrow keys move the cursor.`,
      onkeydown: (event) => this.#move(event),
    })
    this.place = place
    const query = new URLSearchParams([['name', name], ...curves.map(({ run }) => ['run', run])])
    const save = element(
      'a',
      { href: `/chart.svg?${query}`, download: `${name}.svg`, 'aria-label': `Save ${title} as SVG` },
      'SVG',
    )
    this.figure = element(
      'figure',
      {},
      element('figcaption', {}, element('span', { title: name }, title), save),
      place,
    )
    const series = curves.map(({ run }) => ({
      label: runs[run]?.name ?? String(run),
      stroke: colour(`--run-${run % NUM_COLOURS}`),
      dash: DASHES[Math.floor(run / NUM_COLOURS) % DASHES.length],
      width: 1.5,
      spanGaps: true,
      points: { show: data[0].length < 60, size: 4 },
      value: (_, value) => (value === null || value === undefined ? '-' : short(value)),
    }))
    const axis = {
      stroke: colour('--soft'),
      grid: { stroke: colour('--line'), width: 1 },
      ticks: { stroke: colour('--line'), width: 1 },
    }
    this.plot = new globalThis.uPlot(
      {
        width,
        height: HEIGHT,
        scales: { x: { time: false } },
        axes: [axis, { ...axis, size: 56, values: (_, values) => values.map(short) }],
        series: [{ label: 'step', value: (_, value) => (value === null ? '-' : short(value)) }, ...series],
      },
      data,
      place,
    )
  }

  update(data) {
    const shown = JSON.stringify(data)
    if (shown !== this.shown) this.plot.setData(data)
    this.shown = shown
  }

  resize(width) {
    if (this.isOpen && this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT })
  }

  destroy() {
    if (this.isOpen) this.plot.destroy()
    this.isOpen = false
  }

  remove() {
    this.destroy()
    this.figure.remove()
  }

  /** Arrow keys move the cursor from point to point; the legend shows its values. */
  #move(event) {
    const { data, cursor } = this.plot
    const last = data[0].length - 1
    const index = {
      ArrowLeft: (cursor.idx ?? last + 1) - 1,
      ArrowRight: (cursor.idx ?? -1) + 1,
      Home: 0,
      End: last,
    }[event.key]
    if (index === undefined || last < 0) return
    event.preventDefault()
    const at = Math.min(last, Math.max(0, index))
    const value = data.slice(1).find((column) => typeof column[at] === 'number')?.[at] ?? 0
    this.plot.setCursor({ left: this.plot.valToPos(data[0][at], 'x'), top: this.plot.valToPos(value, 'y') })
  }
}

/** The names of the standard charts that a run has, with their titles; those of later phases first. */
function standardNames(charts, names) {
  const phases = ['grpo', 'dpo', 'sft']
  return phases.flatMap((phase) =>
    charts.flatMap(({ title, metrics }) => {
      const name = metrics.map((metric) => `${phase}/${metric}`).find((one) => names.includes(one))
      return name === undefined ? [] : [{ name, title: `${title} (${phase})` }]
    }),
  )
}

/** Columns over the union of all steps. */
function aligned(curves) {
  const steps = [...new Set(curves.flatMap((curve) => curve.steps))].sort((a, b) => a - b)
  const columns = curves.map((curve) => {
    const values = new Map(curve.steps.map((step, index) => [step, curve.values[index]]))
    return steps.map((step) => values.get(step) ?? null)
  })
  return [steps, ...columns]
}

function describe(curves, runs) {
  return curves
    .map(
      ({ run, values }) =>
        `${runs[run]?.name} ${values.length > 0 ? short(values.at(-1)) : 'without points'}`,
    )
    .join(', ')
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim()
}
