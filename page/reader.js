/** One rollout to read: its facts, its turns, the tree of its branches, its tokens. */

import { element, fill, get, short, visible } from './dom.js'
import { showTokens, tokensOf } from './tokens.js'

/** Siblings that are shown side by side. */
const SIBLINGS_MAX = 16

/** Shows one rollout in `parent`. */
export async function showRollout(parent, { run, index, runName }) {
  const rollout = await get('/api/rollout', [
    ['run', run],
    ['index', index],
  ])
  const { groupId, rolloutId, step, ledger, note } = rollout
  const title = element('h2', { tabindex: -1 }, `Rollout ${rolloutId} of group ${groupId} in ${runName}`)
  const siblings = element('a', { href: `#group/${run}/${groupId}/${step ?? ''}` }, 'Siblings side by side')
  const parts = [title, facts(rollout), element('p', {}, siblings), ...turns(rollout)]
  if (note) parts.push(element('p', { class: 'bad' }, visible(note)))
  if (ledger) parts.push(...tokens(rollout))
  else
    parts.push(
      element(
        'p',
        { class: 'soft' },
        'This rollout was recorded without its tokens: train with --record-rollouts to see them.',
      ),
    )
  fill(parent, ...parts)
  return title
}

/** Shows the rollouts of one group in columns. */
export async function showSiblings(parent, { run, group, step, runName }) {
  const query = [['run', run], ['group', group], ...(step === '' ? [] : [['step', step]])]
  const { rollouts, found } = await get('/api/rollouts', query)
  const shown = await Promise.all(
    rollouts.slice(0, SIBLINGS_MAX).map(({ index }) =>
      get('/api/rollout', [
        ['run', run],
        ['index', index],
      ]),
    ),
  )
  const columns = shown.map((rollout) => {
    const link = element('a', { href: `#rollout/${run}/${rollout.index}` }, `Rollout ${rollout.rolloutId}`)
    return element(
      'section',
      { class: 'sibling' },
      element('h3', {}, link),
      facts(rollout),
      ...turns(rollout),
    )
  })
  const title = element('h2', { tabindex: -1 }, `Group ${group} in ${runName}`)
  const more = found > SIBLINGS_MAX ? `The first ${SIBLINGS_MAX} of ${found} rollouts.` : `${found} rollouts.`
  fill(
    parent,
    title,
    element('p', { class: 'soft' }, more),
    element('div', { class: 'siblings', tabindex: 0, role: 'group', 'aria-label': 'Siblings' }, ...columns),
  )
  return title
}

function facts({ status, reward, step, isValidation, facts: line }) {
  const { rewardBreakdown = {}, unscored = {}, cause, advantage } = line
  const rows = [
    ['status', status],
    ['reward', short(reward)],
    ...(typeof advantage === 'number' ? [['advantage', short(advantage)]] : []),
    ...Object.entries(rewardBreakdown).map(([name, score]) => [`reward ${name}`, short(score)]),
    ...Object.entries(unscored).map(([name, reason]) => [
      `no score ${name}`,
      `${reason?.code}: ${reason?.message}`,
    ]),
    ...(cause ? [['cause', `${cause.stage}, ${cause.kind}: ${cause.message}`]] : []),
    ...(step === null ? [] : [['step', step]]),
    ...(isValidation ? [['held out', 'yes']] : []),
  ]
  const cells = rows.flatMap(([name, value]) => [
    element('dt', {}, visible(String(name))),
    element('dd', {}, visible(String(value))),
  ])
  return element('dl', {}, ...cells)
}

function turns(rollout) {
  return rollout.turns.map(({ messages, facts: line }, index) => {
    const head = element('h3', {}, `Turn ${index}`)
    return element('section', { class: 'turn' }, head, turnFacts(line), ...messages.map(message))
  })
}

function turnFacts({
  finishReason,
  bridgeRefusal,
  fork,
  untrained,
  envRewards = {},
  minPolicyVersion,
  maxPolicyVersion,
  numCompletionTokens,
}) {
  const parts = [
    finishReason && `ended by ${finishReason}`,
    numCompletionTokens !== undefined && `${numCompletionTokens} tokens`,
    minPolicyVersion !== undefined &&
      (minPolicyVersion === maxPolicyVersion
        ? `version ${minPolicyVersion}`
        : `versions ${minPolicyVersion} to ${maxPolicyVersion}`),
    bridgeRefusal && `next prompt rendered anew: ${bridgeRefusal}`,
    fork && `departs from ${fork.turnId === null ? 'no turn' : `turn ${fork.turnId}`}: ${fork.reason}`,
    untrained && `not trained: ${untrained}`,
    ...Object.entries(envRewards).map(([name, value]) => `${name} ${short(value)}`),
  ]
  return element('p', { class: 'soft' }, visible(parts.filter(Boolean).join(', ')))
}

/** A message of any form. Calls of tools and their answers are named. */
function message(given) {
  if (given === null || typeof given !== 'object')
    return element('article', { class: 'message' }, element('b', {}, 'no message could be parsed'))
  const {
    role = 'unknown',
    content,
    reasoning_content: reasoning,
    tool_calls: calls,
    name,
    tool_call_id: answered,
  } = given
  const about = [role, name, answered && `answers ${answered}`]
    .filter((part) => typeof part === 'string')
    .join(' ')
  const parts = [
    element('b', { class: `role role-${rolesKnown.has(role) ? role : 'other'}` }, visible(about)),
  ]
  if (reasoning)
    parts.push(element('details', { open: true }, element('summary', {}, 'reasoning'), text(reasoning)))
  if (content !== null && content !== undefined && content !== '') parts.push(text(contentText(content)))
  for (const call of Array.isArray(calls) ? calls : []) parts.push(toolCall(call))
  return element('article', { class: 'message' }, ...parts)
}

const rolesKnown = new Set(['system', 'user', 'assistant', 'tool'])

function toolCall(call) {
  const { name = 'unknown', arguments: given } = call?.function ?? call ?? {}
  const id = call?.id ? ` (${call.id})` : ''
  const shown = typeof given === 'string' ? given : JSON.stringify(given, null, 2)
  return element('div', { class: 'call' }, element('b', {}, visible(`calls ${name}${id}`)), text(shown ?? ''))
}

function contentText(content) {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return JSON.stringify(content)
  return content
    .map((part) => (part?.type === 'text' ? String(part.text) : `[${part?.type}] ${JSON.stringify(part)}`))
    .join('\n')
}

const text = (value) =>
  element('pre', {}, visible(typeof value === 'string' ? value : (JSON.stringify(value) ?? '')))

function tokens({ ledger, tokenTexts, facts: { advantage = null } }) {
  const place = element('div')
  const show = (branch) => showTokens(place, { ledger, texts: tokenTexts, advantage, branch })
  show(0)
  return [element('h3', {}, 'Branches'), branches(ledger, show), element('h3', {}, 'Tokens'), place]
}

/** The tree of branches: each below the one that it left, with the reason. */
function branches(ledger, show) {
  const { own } = tokensOf(ledger)
  const lists = ledger.branches.map(() => element('ul'))
  const items = ledger.branches.map(({ turn, fork }, branch) => {
    const button = element(
      'button',
      {
        type: 'button',
        'aria-pressed': branch === 0 ? 'true' : 'false',
        onclick: () => {
          for (const other of root.querySelectorAll('button'))
            other.setAttribute('aria-pressed', String(other === button))
          show(branch)
        },
      },
      `Branch ${branch}`,
    )
    const reason = fork ? `leaves branch ${fork.branch} at token ${fork.position}: ${fork.reason}; ` : ''
    return element(
      'li',
      {},
      button,
      ` ${reason}opened by turn ${turn}, ${own[branch].length} tokens of its own`,
      lists[branch],
    )
  })
  const root = element('ul', { class: 'branches' })
  for (const [branch, { fork }] of ledger.branches.entries())
    (fork ? lists[fork.branch] : root).append(items[branch])
  for (const list of lists) if (list.childElementCount === 0) list.remove()
  return root
}
