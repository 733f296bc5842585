/** Tests of `npm run conform`: a line per file, decisions and skips counted separately, exit status 1 for any difference. */

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { played, replay } from './replay.mjs'
import { answersOf } from './specs.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'fulmar-conform-'))
after(() => rmSync(folder, { recursive: true }))

const golden = (name) => join(root, 'tests/golden', name)
const rowsOf = (name) => readFileSync(golden(name), 'utf8').split('\n').filter(Boolean)

/** Writes rows as a file of the folder and returns its path. */
function file(name, rows) {
  const path = join(folder, name)
  writeFileSync(path, rows.map((row) => `${typeof row === 'string' ? row : JSON.stringify(row)}\n`).join(''))
  return path
}

function conform(...args) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(root, 'scripts/conform.mjs'), ...args],
    {
      encoding: 'utf8',
    },
  )
  return { status, stdout, stderr }
}

/** Each topic: one of its files, and what of an expectation can be wrong. */
const TOPICS = {
  jinja: {
    rows: () => rowsOf('llm/jinja.jsonl').filter((line) => typeof JSON.parse(line).expected === 'string'),
    alter: { text: (row) => ({ ...row, expected: `${row.expected}.` }) },
  },
  templates: {
    rows: () => rowsOf('llm/templates.jsonl').filter((line) => /torchrl\/chatml/.test(line)),
    files: ['llm/template_cases.json'],
    alter: {
      text: (row) => ({ ...row, expected: row.expected.replace('\n', '\n ') }),
      spans: (row) => ({ ...row, assistant_char_spans: [[0, 1]] }),
      failure: (row) => ({ ...row, expected: null, expected_error: { kind: 'TypeError', message: '' } }),
    },
  },
  history: {
    rows: () => rowsOf('llm/history.jsonl').filter((line) => /"kind": ?"assistant_mask"/.test(line)),
    alter: {
      ids: (row) => ({ ...row, input_ids: [...row.input_ids, 0] }),
      mask: (row) => ({ ...row, assistant_mask: row.assistant_mask.map((bit) => 1 - bit) }),
    },
  },
  tensordict: {
    rows: () =>
      rowsOf('tensor/tensordict.jsonl').filter((line) => /"topic":"index".*"ok":\{"\$td"/.test(line)),
    alter: {
      elements: (row) => ({ ...row, ok: { ...row.ok, k: { ...row.ok.k, a: row.ok.k.i } } }),
      values: (row) => ({ ...row, ok: { ...row.ok, k: { ...row.ok.k, s: { $nt: 'other' } } } }),
      keys: (row) => ({ ...row, ok: { ...row.ok, k: { a: row.ok.k.a } } }),
      failure: ({ ok, ...row }) => ({ ...row, error: { msg: 'refused' } }),
    },
  },
  specs: {
    rows: () => {
      const rows = rowsOf('spec/specs.jsonl')
      const encoded = rows.find((line) => /"topic":"encode_checked".*"ok"/.test(line))
      return [encoded, rows.find((line) => line.includes('"topic":"stacked"'))]
    },
    alter: {
      description: (row) => ({ ...row, spec: { ...row.spec, n: 4 } }),
      value: (row) => ({ ...row, ops: row.ops.map((op) => (op.op === 'zero' ? one(op) : op)) }),
      failure: (row) => ({ ...row, ops: row.ops.map((op) => (op.op === 'to' ? refused(op) : op)) }),
      construction: (row) => ({ ...row, build_error: { class: 'ValueError' } }),
    },
  },
  replay: {
    rows: () =>
      rowsOf('replay/buffer_ops.jsonl').filter(
        (line) => line.includes('"topic":"prioritized"') && !played(JSON.parse(line)).outcome,
      ),
    alter: {
      rows: (row) => changed(row, 'extend', (op) => ({ ...op, ok: { ...op.ok, d: op.ok.d.toReversed() } })),
      contents: (row) =>
        changed(row, 'extend', (op) => ({ ...op, state: { ...op.state, contents: { $td: [1], k: {} } } })),
      length: (row) => changed(row, 'extend', (op) => ({ ...op, state: { ...op.state, len: 0 } })),
      leaves: (row) =>
        changed(row, 'extend', (op) => ({ ...op, state: { ...op.state, sum_leaves: [0.5, 1, 1, 1] } })),
    },
  },
  transforms: {
    rows: () => rowsOf('transform/transforms.jsonl').filter((line) => /"topic":"DensifyReward"/.test(line)),
    alter: {
      elements: (row) => ({ ...row, config: { $dict: [['discount', 0.1]] } }),
      keys: (row) => ({ ...row, ok: { ...row.ok, k: {} } }),
      dtype: (row) => ({ ...row, ok: JSON.parse(JSON.stringify(row.ok).replace('float32', 'float64')) }),
      failure: ({ ok, ...row }) => ({ ...row, error: { msg: 'refused' } }),
    },
  },
  samplers: {
    rows: () => rowsOf('replay/samplers.jsonl').filter((line) => line.includes('"topic":"prioritized"')),
    alter: {
      leaves: (row) => ({ ...row, leaves: row.leaves.map((leaf) => leaf + 1) }),
      probabilities: (row) => ({
        ...row,
        probabilities: row.probabilities.map((one, at) => one + Number(at === 0)),
      }),
      weights: (row) => ({ ...row, weights: row.weights.map((weight) => weight / 2) }),
      failure: (row) => ({ ...row, error: { class: 'RuntimeError' } }),
    },
  },
  slices: {
    rows: () =>
      rowsOf('replay/slices.jsonl').filter((line) => /"topic":"slice_distribution".*"note":null/.test(line)),
    alter: {
      support: (row) => ({ ...row, slices: row.slices.slice(1) }),
      probabilities: (row) => ({
        ...row,
        slices: row.slices.map((slice, at) => ({ ...slice, p: at === 0 ? '9/10' : '1/100' })),
      }),
      failure: (row) => ({ ...row, error: { class: 'RuntimeError' } }),
    },
  },
  losses: {
    rows: () =>
      ['grpo', 'family'].flatMap((name) =>
        rowsOf(`objective/${name}.jsonl`).filter(
          (line) => line.includes('"library":"trl"') && line.includes('"case":"grid"'),
        ),
      ),
    alter: {
      value: (row) => ({
        ...row,
        outputs: { loss: row.outputs.loss + 0.01, metrics: { ...row.outputs.metrics, policy_loss: 1e3 } },
      }),
      gradient: (row) => ({
        ...row,
        gradients: {
          ...row.gradients,
          cur_log_probs: row.gradients.cur_log_probs.map((one) => one.map((d) => d + 0.01)),
        },
      }),
      entropy: (row) => ({
        ...row,
        outputs: { ...row.outputs, metrics: { ...row.outputs.metrics, entropy: 9 } },
      }),
      failure: (row) => ({ ...row, expected_error: { kind: 'ValueError' } }),
    },
  },
  preferences: {
    rows: () =>
      rowsOf('objective/preference.jsonl').filter((line) =>
        /"kind":"trl_(dpo|kto|sft|rloo|reward)/.test(line),
      ),
    alter: {
      value: (row) => ({ ...row, loss: row.loss * 1.01 + 0.01 }),
      gradient: (row) => ({ ...row, gradient: row.gradient.map((one) => [one].flat().map((d) => d + 0.01)) }),
    },
  },
  encode: {
    rows: () => rowsOf('tokenizer/wordpiece/encode.jsonl'),
    files: ['tokenizer/wordpiece/tokenizer.json'],
    alter: {
      ids: (row) => ({ ...row, ids: [...row.ids, 1] }),
      offsets: (row) => ({
        ...row,
        offsets: row.offsets.map(([start, end]) => [start, end + 1]).concat([[0, 0]]),
      }),
      decoded: (row) => ({ ...row, decoded: `${row.decoded} ` }),
      skipped: (row) => ({ ...row, decoded_skip_special: `${row.decoded_skip_special} ` }),
    },
  },
  decode: {
    rows: () => rowsOf('tokenizer/byte_fallback/decode.jsonl'),
    files: ['tokenizer/byte_fallback/tokenizer.json'],
    alter: {
      decoded: (row) => ({ ...row, decoded: `x${row.decoded}` }),
      chunks: (row) => ({
        ...row,
        stream_chunks: row.stream_chunks.map((chunk) => `${chunk ?? ''}x`).concat('x'),
      }),
    },
  },
  batch: {
    rows: () => rowsOf('tokenizer/wordpiece/batch.jsonl'),
    files: ['tokenizer/wordpiece/tokenizer.json'],
    alter: {
      ids: (row) => ({ ...row, input_ids: row.input_ids.map((ids) => [...ids, 9]) }),
      mask: (row) => ({
        ...row,
        attention_mask: row.attention_mask.map((mask) => mask.map((bit) => 1 - bit).concat(1)),
      }),
    },
  },
}

const one = (op) => ({ ...op, ok: { ...op.ok, d: op.ok.d.map(() => 1) } })
const changed = (row, name, change) => ({
  ...row,
  ops: row.ops.map((op) => (op.op === name && op.ok ? change(op) : op)),
})
const refused = ({ ok, ...op }) => ({ ...op, error: { class: 'RuntimeError' } })

for (const [topic, { rows, files = [], alter }] of Object.entries(TOPICS)) {
  test(`${topic}: every altered expectation is a failure, and only it`, () => {
    for (const name of files) copyFileSync(golden(name), join(folder, name.split('/').at(-1)))
    const [first, second] = rows()
    const right = file(`${topic}.jsonl`, [first, second])
    const paths = [right]
    for (const [part, change] of Object.entries(alter)) {
      paths.push(file(`${topic}-${part}.jsonl`, [first, change(JSON.parse(second))]))
    }
    const { status, stdout } = conform(...paths)
    const counts = stdout.split('\n').filter((line) => / passed, /.test(line))
    assert.equal(counts[0], `${right}: 2 passed, 0 failed`, stdout)
    assert.deepEqual(
      counts.slice(1),
      paths.slice(1).map((path) => `${path}: 1 passed, 1 failed`),
      stdout,
    )
    assert.equal(stdout.match(/^ {2}line 2: /gm)?.length, paths.length - 1, 'each difference names its line')
    assert.equal(status, 1)
    assert.equal(conform(right).status, 0)
  })
}

const bools = (s, ...d) => ({ $t: 'bool', s, d })
const bytes = (s, ...d) => ({ $t: 'int8', s, d })
const MASK = bools([1, 2], true, false)

/** Rows of TorchRL 0.14.1 that are in no file: specs of other shapes, and texts, calls and factors of their own. */
const OTHERS = {
  spec: [
    {
      topic: 'spec',
      build: { cls: 'OneHot', args: [2, { $tuple: [1, 2] }], kwargs: { mask: MASK } },
      spec: { cls: 'OneHot', shape: [1, 2], dtype: 'bool', domain: 'discrete', n: 2, mask: MASK },
      ops: [
        { op: 'encode', value: [1], ok: bools([1, 2], false, true) },
        { op: 'is_in', value: bools([1, 2], true, true), ok: true },
        { op: 'to_numpy', value: bools([1, 2], false, false), ok: { $np: 'int64', s: [1], d: [0] } },
        { op: 'reshape_expanded', expanded_by: [2, 3], shape: [-1, 1, 2], error: 'RuntimeError' },
      ],
    },
    {
      topic: 'spec',
      build: { cls: 'Bounded', args: [-1, 1, { $tuple: [2, 1] }], kwargs: { dtype: { $dtype: 'int8' } } },
      spec: {
        cls: 'BoundedDiscrete',
        shape: [2, 1],
        dtype: 'int8',
        domain: 'discrete',
        low: bytes([2, 1], -1, -1),
        high: bytes([2, 1], 1, 1),
      },
      ops: [
        {
          op: 'project',
          value: { $t: 'float32', s: [2, 1], d: [1.5, 0.5] },
          ok: { $t: 'float32', s: [2, 1], d: [1, 0.5] },
        },
        { op: 'is_in', value: bytes([3, 1], 0, 0, 0), error: 'RuntimeError' },
        { op: 'encode', value: [0, 1], ok: bytes([2, 1], 0, 1) },
      ],
    },
    {
      topic: 'spec',
      build: { cls: 'MultiCategorical', args: [[2, 3], { $tuple: [1, 2] }], kwargs: {} },
      spec: { cls: 'MultiCategorical', shape: [1, 2], dtype: 'int64', domain: 'discrete', nvec: [[2, 3]] },
      ops: [
        { op: 'flatten_expanded', expanded_by: [2, 3], error: 'RuntimeError' },
        {
          op: 'index_expanded',
          expanded_by: [2, 3],
          index: { $tuple: [{ $ellipsis: true }, 0] },
          ok: {
            spec: {
              cls: 'MultiCategorical',
              shape: [2, 3, 1],
              dtype: 'int64',
              domain: 'discrete',
              nvec: [
                [[2], [2], [2]],
                [[2], [2], [2]],
              ],
            },
          },
        },
      ],
    },
  ],
  history: [
    {
      kind: 'from_text',
      template: 'deepseek',
      text: '<s>Be kind.\n\nUser: One?\n\nAssistant: 1</s>\n\nUser: Two?\n\nAssistant:',
      parsed: [
        { role: 'user', content: 'One?', is_complete: true },
        { role: 'assistant', content: '1</s>', is_complete: true },
        { role: 'user', content: 'Two?', is_complete: true },
      ],
    },
    {
      kind: 'from_text',
      template: 'llama',
      text: '<|begin_of_text|><|header_start|>system<|header_end|>\n\n<|eot|><|header_start|>user<|header_end|>\n\nA<|eot|>',
      parsed: [{ role: 'user', content: 'A', is_complete: true }],
    },
  ],
}

for (const [topic, rows] of Object.entries(OTHERS)) {
  test(`${topic}: rows of other shapes and texts are judged right, and no change of theirs goes unnoticed`, () => {
    const right = file(`other-${topic}.jsonl`, rows)
    assert.match(conform(right).stdout, new RegExp(`: \\d passed, 0 failed, ${rows.length} by decision\n`))
    const { status, stdout } = conform('--perturb', right)
    assert.match(stdout, /\n[1-9]\d* changes, 0 unnoticed, 0 more /)
    assert.equal(status, 0, stdout)
  })
}

test('a row goes by its topic and shape, whatever its id', () => {
  const [line] = rowsOf('spec/specs.jsonl')
  assert.match(conform(file('id.jsonl', [{ ...JSON.parse(line), id: 'another' }])).stdout, / 0 failed/)
})

test('a chat row can call any tool that it lists, and name no option that is not known', () => {
  const rows = rowsOf('llm/chat_env.jsonl').map((line) => JSON.parse(line))
  const simple = rows.find(({ kind }) => kind === 'simple_tool')
  const result = `Tool echo executed successfully:\n{'a': "it's", 'b': [1, None]}`
  const row = { ...simple, content: '<tool>echo\n{"a": "it\'s", "b": [1, null]}\n</tool>', results: [result] }
  assert.match(conform(file('echo.jsonl', [row])).stdout, / 0 failed, 1 by decision\n/)
  assert.equal(conform(file('other-echo.jsonl', [{ ...row, results: [result.replace('1', '2')] }])).status, 1)
  const countdown = rows.find(({ kind }) => kind === 'countdown_env')
  const strange = file('option.jsonl', [{ ...countdown, config: { ...countdown.config, allow_sum: false } }])
  assert.match(conform(strange).stdout, /the option allow_sum is not known/)
})

test('a decision needs a rule that says what the original gives', () => {
  const row = { ...OTHERS.spec[0], ops: [{ op: 'is_in', value: bools([1, 2], true, true), ok: false }] }
  assert.match(conform(file('rule.jsonl', [row])).stdout, /1 failed\n.*the original gives/)
})

test('no answer of a spec is lost to a decision', () => {
  const asked = rowsOf('spec/specs.jsonl')
    .map((line) => JSON.parse(line))
    .filter((row) => row.ops?.length > 0 && !row.build_error && row.note !== 'low > high')
  const rows = asked.filter(({ build }) => !build.names && (build.cls !== 'Categorical' || build.args[0] > 0))
  const answers = rows.flatMap((row) => answersOf(row))
  // Those with the same values in another dtype are compared element by element, too.
  const isCompared = (outcome) =>
    outcome === undefined ||
    / the dtype of (its|their) spec$|^a value of another form is in no domain$/.test(outcome.byDecision)
  const count = answers.filter(isCompared).length
  assert.ok(count >= 6_726, `${count} of ${answers.length} answers are as expected`)
})

test('no operation of a buffer is lost to a decision', () => {
  const rows = rowsOf('replay/buffer_ops.jsonl').map((line) => JSON.parse(line))
  const asked = rows.filter((row) => replay.matches(row) && !row.build_error)
  const lost = asked.filter((row) => played(row).compared !== row.ops.length)
  assert.deepEqual(
    lost.map((row) => row.id),
    [],
  )
  assert.ok(asked.length >= 150, `${asked.length} rows were played`)
})

/** A row of a buffer with another name for a leaf, and other numbers in it. */
function rewritten(row) {
  const other = (value) => (typeof value === 'number' ? 2 * value : value)
  const walk = (node) => {
    if (Array.isArray(node)) return node.map(walk)
    if (typeof node !== 'object' || node === null) return node
    const entries = Object.entries(node).map(([name, inner]) =>
      name === 'obs' && inner.d ? ['view', { ...inner, d: inner.d.map(other) }] : [name, walk(inner)],
    )
    return Object.fromEntries(entries)
  }
  return { ...walk(row), id: 'another' }
}

test('a row of a buffer is judged by what it holds, not by its names, numbers and id', () => {
  const topics = ['storage_x_writer', 'ring', 'schema_drift', 'generations', 'prioritized', 'consuming']
  const rows = rowsOf('replay/buffer_ops.jsonl').map((line) => JSON.parse(line))
  const chosen = rows.filter(
    ({ topic, ops }) => topics.includes(topic) && !ops.some(({ index }) => index === 'obs'),
  )
  for (const row of chosen) {
    const { outcome } = played(row)
    assert.deepEqual(played(rewritten(row)).outcome, outcome, row.id)
  }
  assert.ok(chosen.length >= 90, `${chosen.length} rows were rewritten`)
})

const int64 = (d, s = [d.length]) => ({ $t: 'int64', s, d })
const ids = (d) => ({ $td: [d.length], k: { id: int64(d) } })
const stored = (id, index) => ({
  $td: [],
  k: { id: int64([id], []), ...(index !== undefined && { index: int64([index], []) }) },
})

/** Rows that no golden file has: of each what TorchRL gives, and the decision by which Fulmar differs. */
const FRESH = {
  'a list that an edit lets grow': {
    rules: 'an edit does not append',
    row: {
      setup: { buffer: 'ReplayBuffer', storage: { cls: 'ListStorage', max_size: 3 }, batch_size: 1 },
      ops: [
        { op: 'extend', data: ids([4]), ok: int64([0]), state: { len: 1, cursor: 1, contents: [stored(4)] } },
        {
          op: 'setitem',
          index: 1,
          data: { $td: [], k: { id: int64([5], []) } },
          ok: null,
          state: { len: 2, cursor: 1, write_count: 1, revision: 2, contents: [stored(4), stored(5)] },
        },
        { op: 'len', ok: 2 },
        { op: 'extend', data: ids([6, 7]), ok: int64([1, 2]), state: { len: 3, cursor: 0, is_full: true } },
        { op: 'get', index: { $slice: [null, null, 2] }, ok: ids([4, 7]) },
      ],
    },
  },
  'a leaf that only later items have, and then a draw': {
    rules: 'leaves that are missing or too many are refused',
    row: {
      setup: { buffer: 'ReplayBuffer', storage: { cls: 'LazyTensorStorage', max_size: 3 }, batch_size: 2 },
      ops: [
        { op: 'extend', data: ids([4]), ok: int64([0]) },
        {
          op: 'extend',
          data: { $td: [1], k: { id: int64([5]), late: int64([9]) } },
          ok: int64([1]),
          state: { contents: { $td: [2], k: { id: int64([4, 5]), late: int64([0, 9]) } } },
        },
        { op: 'sample_size', batch_size: null, ok: [2] },
        {
          op: 'sample_index',
          index: int64([1, 0]),
          ok: { $td: [2], k: { id: int64([5, 4]), late: int64([9, 0]) } },
        },
      ],
    },
  },
  'a ring of rows that know where they lie': {
    row: {
      setup: { buffer: 'TensorDictReplayBuffer', storage: { cls: 'LazyStackStorage', max_size: 2 } },
      ops: [
        {
          op: 'extend',
          data: ids([4, 5, 6]),
          ok: int64([0, 1, 0]),
          state: { contents: [stored(6, 0), stored(5, 1)] },
        },
        { op: 'get', index: -1, ok: stored(5, 1), state: { contents: 'same', cursor: 1, write_count: 3 } },
        { op: 'get', index: 2, error: { class: 'IndexError', msg: '' } },
      ],
    },
  },
}

for (const [name, { rules, row }] of Object.entries(FRESH)) {
  test(`a fresh row, ${name}: it is right, and nothing else is`, () => {
    const right = { id: 'fresh', topic: 'ring', ...row }
    assert.deepEqual(played(right).outcome, rules && { byDecision: rules })
    const last = right.ops.at(-1)
    const wrongs = [
      last.error ? { ...last, error: undefined, ok: null } : { ...last, ok: undefined, error: { msg: '' } },
      last.error ? undefined : { ...last, ok: int64([1]) },
    ].filter(Boolean)
    for (const wrong of wrongs)
      assert.equal(typeof played({ ...right, ops: [...right.ops.slice(0, -1), wrong] }).outcome, 'string')
  })
}

/** Rows of other topics that no golden file has, without ids: what is right, and the same with one value changed. */
const UNSEEN = {
  'a block of Q8_0': [
    {
      ...{ name: 'ones', type: 'Q8_0', type_id: 8, block_elements: 32, block_bytes: 34, note: null },
      hex: `003c${'01ff'.repeat(16)}`,
      values_f32: Array.from({ length: 32 }, (_, at) => (at % 2 === 0 ? 1 : -1)),
    },
    (row) => ({ ...row, values_f32: row.values_f32.with(31, 1) }),
  ],
  'a schedule of other numbers': [
    { topic: 'scheduler', scheduler: 'Linear(0.5, 2)', initial: 0.1, ok: [0.3, 0.5, 0.5] },
    (row) => ({ ...row, ok: [0.3, 0.5, 0.6] }),
  ],
  'a tree of three leaves': [
    {
      ...{ kind: 'sum', dtype: 'float32', size: 3, capacity: 4, identity: 0, note: null },
      ops: [
        { op: 'update', index: [0, 1, 2], value: [16_777_216, 1, 1], ok: null },
        { op: 'query', l: 0, r: 3, ok: 16_777_216 },
        { op: 'scan', x: 16_777_217, ok: 0 },
      ],
    },
    (row) => ({ ...row, ops: row.ops.with(1, { ...row.ops[1], ok: 16_777_218 }) }),
  ],
}

for (const [name, [row, alter]] of Object.entries(UNSEEN)) {
  test(`an unseen row, ${name}: it passes, and fails once a value is changed`, () => {
    const { status, stdout } = conform(file('unseen.jsonl', [row, alter(row)]))
    assert.match(stdout, /unseen\.jsonl: 1 passed, 1 failed\n {2}line 2: /)
    assert.equal(status, 1)
  })
}

test('a class of a buffer that is not known fails its row', () => {
  const [row] = rowsOf('replay/buffer_ops.jsonl').map((line) => JSON.parse(line))
  for (const [part, cls] of [
    ['storage', 'CloudStorage'],
    ['writer', 'LastWriter'],
    ['sampler', 'BestSampler'],
  ]) {
    const setup = { ...row.setup, [part]: { ...row.setup[part], cls } }
    assert.match(played({ ...row, setup }).outcome, new RegExp(`the ${part} ${cls} must be known`))
  }
})

test('no draw of a sampler is lost to a decision', () => {
  const { stdout } = conform(golden('replay/samplers.jsonl'), golden('replay/slices.jsonl'))
  const passed = [...stdout.matchAll(/(\d+) passed, 0 failed/g)].map(([, count]) => Number(count))
  assert.ok(passed[0] >= 117 && passed[1] >= 312, stdout)
})

test('decisions and missing files are counted apart, with their reason', () => {
  const decided = rowsOf('llm/history.jsonl').filter((line) => JSON.parse(line).upstream_bug)
  const unknown = { ...JSON.parse(rowsOf('llm/templates.jsonl')[0]), source: 'templates/none/none.jinja' }
  const { status, stdout } = conform(
    file('decided.jsonl', decided.slice(0, 1)),
    file('skipped.jsonl', [JSON.stringify(unknown)]),
  )
  assert.match(stdout, /decided\.jsonl: 0 passed, 0 failed, 1 by decision\n {2}1 by decision \w/)
  assert.match(stdout, /skipped\.jsonl: 0 passed, 0 failed, 1 skipped\n {2}1 SKIPPED for want of \w/)
  assert.equal(status, 0)
})

test('a file that holds no row, unknown rows or no JSON fails', () => {
  const paths = [
    file('empty.jsonl', []),
    file('unknown.jsonl', [{ colour: 'red' }]),
    file('broken.jsonl', ['{']),
  ]
  for (const path of paths) assert.equal(conform(path).status, 1, path)
  assert.match(
    conform(...paths).stdout,
    /the file must hold at least one row: got 0\n.*\n.*no adapter knows a row of colour/,
  )
})

test('a change that no comparison notices is shown, with its place', () => {
  const right = file('perturbed.jsonl', rowsOf('llm/jinja.jsonl').slice(0, 2))
  const { status, stdout } = conform('--perturb', right)
  assert.match(stdout, /^jinja: 2 rows, [1-9]\d* changes, 0 unnoticed\n/)
  assert.equal(status, 0, stdout)
  const skipped = rowsOf('fetch/transfer.jsonl')
  assert.match(
    conform('--perturb', file('skipped-only.jsonl', skipped)).stdout,
    /0 changes, 0 unnoticed.*\n0 passed, 1 failed/,
  )
})

test('a member that an adapter does not know fails its row', () => {
  const [line] = rowsOf('llm/jinja.jsonl')
  const { status, stdout } = conform(file('member.jsonl', [{ ...JSON.parse(line), autoescape: true }]))
  assert.match(stdout, /jinja must know what autoescape means/)
  assert.equal(status, 1)
})

test('rows that need what is not there are skipped for a reason, and never pass', () => {
  const rows = rowsOf('fetch/transfer.jsonl')
  const { status, stdout } = conform(file('transfer.jsonl', rows))
  assert.match(
    stdout,
    /transfer\.jsonl: 0 passed, 0 failed, 18 skipped\n {2}18 SKIPPED for want of a server that misbehaves/,
  )
  assert.equal(status, 0)
})

test('wrong arguments are refused before anything is compared', () => {
  for (const args of [
    [],
    ['/no/such/file.jsonl'],
    ['--backend', 'gpu', 'x'],
    ['--fast', 'x'],
    ['--perturb', '--share', '0', 'x'],
  ]) {
    const { status, stdout, stderr } = conform(...args)
    assert.deepEqual([status, stdout], [1, ''], args.join(' '))
    assert.match(stderr, /got /)
  }
})
