/** The page: which runs are shown, which view, and the loop that follows the runs. */

import { Charts } from './charts.js'
import { element, fill, get } from './dom.js'
import { Rollouts } from './rollouts.js'

/** Milliseconds between looks at the runs. */
const POLL_MS = 2_000
const NUM_COLOURS = 8

const view = document.getElementById('view')
const runsBar = document.getElementById('runs')
const state = document.getElementById('state')
const hidden = new Set()
let current
let latest = { charts: [], runs: [] }
let drawn = ''

const VIEWS = { charts: chartsView, rollouts: rolloutsView, rollout: rolloutsView, group: rolloutsView }

function chartsView(parent) {
  const charts = new Charts(parent)
  parent.addEventListener('wanted', () => void draw(true))
  return {
    update: () => charts.update(latest.charts, latest.runs, shownRuns()),
    recolour: () => charts.recolour(),
    close: () => charts.close(),
  }
}

function rolloutsView(parent) {
  return new Rollouts(parent, () => latest.runs)
}

const shownRuns = () => latest.runs.map(({ id }) => id).filter((id) => !hidden.has(id))

/** Opens the view that the address names; one that is open only shows another part. */
function open() {
  const address = location.hash.slice(1).split('/')
  const make = VIEWS[address[0]] ?? chartsView
  const tab = make === rolloutsView ? '#rollouts' : '#charts'
  for (const link of document.querySelectorAll('nav a')) {
    if (link.getAttribute('href') === tab) link.setAttribute('aria-current', 'page')
    else link.removeAttribute('aria-current')
  }
  if (current?.make !== make) {
    current?.view.close()
    const place = element('div')
    fill(view, place)
    current = { make, view: make(place) }
    void draw(true)
  }
  void current.view.show?.(address)
}

/** Draws the view if something changed. */
async function draw(isForced) {
  const key = JSON.stringify([latest.runs.map(({ revision }) => revision), [...hidden]])
  if (!isForced && key === drawn) return
  drawn = key
  try {
    await current.view.update()
  } catch (error) {
    state.textContent = `Not drawn: ${error.message}`
  }
}

function showRuns() {
  const boxes = latest.runs.map(({ id, name, folder, state: progress, isHere, notes }) => {
    const box = element('input', {
      type: 'checkbox',
      checked: !hidden.has(id),
      onchange: (event) => {
        if (event.target.checked) hidden.delete(id)
        else hidden.add(id)
        void draw(true)
      },
    })
    const label = element(
      'label',
      { title: folder },
      box,
      element('span', { class: `key key-${id % NUM_COLOURS}` }),
      ` ${name} `,
    )
    const about = element('small', {}, isHere ? progress : `${progress}; the folder has vanished`)
    const list = element('ul', {}, ...notes.map((note) => element('li', {}, note)))
    const noted =
      notes.length === 0
        ? undefined
        : element('details', {}, element('summary', {}, `${notes.length} notes`), list)
    return element('div', { class: 'run' }, label, about, noted)
  })
  fill(runsBar, ...boxes)
}

/** Looks at the runs; shows them anew only if something changed, so that the focus stays. */
async function look() {
  try {
    const next = await get('/api/runs')
    const isChanged = JSON.stringify(next.runs) !== JSON.stringify(latest.runs)
    latest = next
    if (isChanged) showRuns()
    if (state.textContent !== '') state.textContent = ''
    await draw(false)
  } catch (error) {
    state.textContent = `Not connected: ${error.message}`
  }
  setTimeout(look, POLL_MS)
}

addEventListener('hashchange', open)
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  current.view.recolour?.()
  void draw(true)
})
latest = await get('/api/runs')
showRuns()
open()
setTimeout(look, POLL_MS)
