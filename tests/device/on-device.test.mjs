/**
 * `on-device.sh` with `fulmar-device` on the emulated GPU, in folders that hold nothing else of the repository. Stage `cuda-emulated`
 * builds both and runs this file.
 */

import assert from 'node:assert/strict'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { nativeTarget, root, run } from '../../scripts/steps.mjs'

const PARTS = ['here', 'checks', 'benches', 'model', 'rivals', 'memcheck', 'racecheck', 'synccheck', 'ncu']
const FILES = {
  'on-device.sh': 'scripts/on-device.sh',
  'fulmar-device': `target/${nativeTarget()}/debug/fulmar-device`,
  'rivals.py': 'benches/device/rivals.py',
}

/** Tools of NVIDIA's toolkit, as far as the script sees them: their arguments and files. */
const SANITIZER = `#!/bin/sh
while [ "\${1#--}" != "$1" ]; do shift 2; [ "$1" = 9 ] && shift; done
exec "$@"`
const FAILING_SANITIZER = '#!/bin/sh\necho "Invalid __global__ read"; exit 9'
const PROFILER = `#!/bin/sh
while [ $# -gt 0 ]; do
  [ "$1" = --log-file ] && file=$2
  [ "$1" = --kernel-name ] && kernels=$2
  shift
done
echo "\\"Kernel Name\\",\\"$kernels\\"" > "$file"`

/** Runs the script of a folder with these files and tools; `remove` leaves some of the files out. */
async function onDevice(args, { env = {}, tools = {}, remove = [], text = {} } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'fulmar-on-device-'))
  try {
    for (const [name, from] of Object.entries(FILES)) {
      if (!remove.includes(name)) copyFileSync(join(root, from), join(folder, name))
    }
    for (const [name, content] of Object.entries({ ...text, ...tools })) {
      writeFileSync(join(folder, name), content)
      chmodSync(join(folder, name), 0o755)
    }
    const out = join(folder, 'out')
    const all = {
      LD_LIBRARY_PATH: join(root, 'target/emulated'),
      PATH: `${folder}:/usr/bin:/bin`,
      FULMAR_EMULATED_OPEN: '1',
      ...env,
    }
    const script = [join(folder, 'on-device.sh'), '--out', out, ...args]
    const { code, output } = await run('bash', script, { env: all, cwd: folder })
    const path = join(out, 'report.json')
    const report = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : undefined
    return { code, output, report, path }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const resultsOf = (report) => Object.fromEntries(report.parts.map(({ name, result }) => [name, result]))

test('all checks pass, and the report has every part in its order', async () => {
  const { code, output, report, path } = await onDevice(['--seed', '907', '--budget', '9999'])
  assert.equal(code, 0, output)
  assert.deepEqual(
    report.parts.map(({ name }) => name),
    PARTS,
  )
  const results = resultsOf(report)
  assert.equal(results.checks, 'done')
  assert.equal(results.benches, 'done')
  assert.match(results.rivals, /^skipped: PyTorch/)
  assert.equal(results.ncu, 'skipped: ncu is missing')
  assert.equal(report.here.device, 'emulated GPU')
  assert.equal(report.here['compute-sanitizer'], 'missing')
  assert.ok(report.checks.every(({ seed, passed, failed }) => seed === 907 && passed > 0 && failed === 0))
  const copy = report.benches.find(({ name }) => name === 'copy')
  assert.ok(copy.gigabytes_per_second > 0)
  const bench = report.benches.find(({ name }) => name === 'log_prob')
  assert.equal(bench.milliseconds.length, 2)
  assert.ok(bench.share > 0 && bench.goal === 0.85 && bench.goal_of === 'copy')
  assert.equal(results.model, 'done')
  const decoders = report.benches.slice(-4)
  assert.deepEqual(
    decoders.map(({ name, goal_of }) => [name, goal_of]),
    [
      ['decode 0.5 B', 'tokens_per_second'],
      ['training 0.5 B', 'peak'],
      ['training 3 B layers', 'peak'],
      ['GRPO 0.5 B', undefined],
    ],
  )
  assert.ok(
    decoders.every(({ milliseconds }) => milliseconds.length === 2 && milliseconds.every((time) => time > 0)),
  )
  assert.deepEqual(Object.keys(decoders[3].parts), ['draw', 'forward', 'backward', 'optimizer'])
  const table = output.slice(output.indexOf('name  ')).trimEnd().split('\n')
  assert.ok(table.length <= 60 && table.some((line) => /short by \d+ %|met$/.test(line)))
  assert.ok(!table.some((line) => /lines more/.test(line)))
  assert.ok(
    table.some((line) => /^decode 0.5 B 3 x \(5 \+ 4\) +[\d.]+ ms, \d+ tokens\/s +\d+ % of goal/.test(line)),
  )
  assert.ok(
    table.some((line) => /^training 0.5 B .* 30 % of peak wanted, which was not measured$/.test(line)),
  )
  assert.equal(table.at(-1), `report: ${path}`)
})

test('a failed check is exit status 1, with its first differing elements', async () => {
  const { code, output, report } = await onDevice(['--only', 'cast'], {
    env: { FULMAR_EMULATED_FAIL_LAUNCH: '1' },
  })
  assert.equal(code, 1, output)
  assert.equal(resultsOf(report).checks, 'failed (exit status 1)')
  assert.deepEqual(
    report.checks.map(({ name, failed }) => [name, failed]),
    [['cast', 1]],
  )
  assert.match(report.checks[0].failures[0], /LAUNCH_OUT_OF_RESOURCES/)
  const part = report.parts.find(({ name }) => name === 'checks')
  assert.ok(part.log.some((line) => line.startsWith('FAILED')))
})

test('a folder without the program, or with one of another machine, is exit status 2', async () => {
  const without = await onDevice([], { remove: ['fulmar-device'] })
  assert.equal(without.code, 2)
  assert.match(without.output, /fulmar-device is not built: node scripts\/device-bundle.mjs makes it/)
  const other = await onDevice([], { remove: ['fulmar-device'], text: { 'fulmar-device': '\x7fELF\x02' } })
  assert.equal(other.code, 2)
  assert.match(other.output, /fulmar-device is not built for this machine \(x86_64, glibc/)
  assert.equal(other.report, undefined)
})

test('a machine without a GPU is exit status 3', { skip: existsSync('/dev/nvidiactl') }, async () => {
  const { code, output, report } = await onDevice([], { env: { LD_LIBRARY_PATH: '' } })
  assert.equal(code, 3, output)
  assert.match(output, /^0 devices: GPU checks skipped: NVIDIA's driver must be installed/)
  assert.equal(report, undefined)
})

test('wrong arguments are exit status 64, with a sentence', async () => {
  const refused = async (args, sentence) => {
    const { code, output } = await onDevice(args)
    assert.equal(code, 64, output)
    assert.match(output, sentence)
  }
  await refused(['--fast', '1'], /option must be one of --budget, --only, --out, --seed: got --fast/)
  await refused(['--budget'], /--budget must have a value/)
  for (const budget of ['0', '1.5', '100000', 'x'])
    await refused(['--budget', budget], /--budget must be seconds, from 1 to 99999/)
  for (const seed of ['-1', '1.5', 'x'])
    await refused(['--seed', seed], /--seed must be a whole number of at most 18 digits: got/)
  await refused(
    ['--only', 'nothing'],
    /--only must be one of attention, .*got "nothing"; or a part, one of here/,
  )
})

test('a part that is longer than what is left ends, and those after it are skipped', async () => {
  const tools = { nvcc: '#!/bin/sh\nexec sleep 60' }
  // Some of the seconds are for what comes before the compiler, however slow the machine.
  const { code, output, report } = await onDevice(['--budget', '10'], { tools })
  assert.equal(code, 1, output)
  const results = resultsOf(report)
  assert.match(results.here, /^ended after \d+ s$/)
  assert.equal(results.checks, 'skipped: the 10 s are over')
  assert.equal(results.benches, 'skipped: the 10 s are over')
  // What was found before the end is there.
  assert.equal(report.here.device, 'emulated GPU')
})

test('tools of the toolkit run on the checks and on the slowest kernels', async () => {
  const tools = { 'compute-sanitizer': SANITIZER, ncu: PROFILER }
  const { code, output, report } = await onDevice(['--only', 'cast'], { tools })
  assert.equal(code, 0, output)
  const results = resultsOf(report)
  for (const part of ['memcheck', 'racecheck', 'synccheck', 'ncu']) assert.equal(results[part], 'done', part)
  assert.deepEqual(report.ncu, ['"Kernel Name","regex:^(f32_to_bf16)$"'])
})

test('what a sanitizer finds is exit status 1', async () => {
  const tools = { 'compute-sanitizer': FAILING_SANITIZER }
  const { code, report } = await onDevice(['--only', 'sanitizer'], { tools })
  assert.equal(code, 1)
  assert.deepEqual(
    report.parts.map(({ name, result }) => [name, result]),
    ['memcheck', 'racecheck', 'synccheck'].map((tool) => [tool, 'failed (exit status 9)']),
  )
  assert.deepEqual(report.parts[0].log, ['Invalid __global__ read'])
})

test('one part, or the kernels of one file, run alone', async () => {
  const here = await onDevice(['--only', 'here'])
  assert.equal(here.code, 0, here.output)
  assert.deepEqual(resultsOf(here.report), { here: 'done' })
  const rows = await onDevice(['--only', 'rows'])
  assert.equal(rows.code, 0, rows.output)
  assert.deepEqual(
    rows.report.checks.map(({ name }) => name),
    ['rows'],
  )
  assert.deepEqual(
    rows.report.benches.map(({ name }) => name),
    ['copy', 'gather', 'scatter_add'],
  )
})
