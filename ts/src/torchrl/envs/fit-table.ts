/** The task `fitTable`: fit a model to a table, scored on rows that the agent never saw. */

import { checkKnownKeys, Rng } from '../../core/index.js'
import type { MLGymTask } from './ml-gym-task.js'

/** Options of {@link fitTable}. */
export interface FitTableOptions {
  /** Seed of the table and of its law. A non-negative safe integer. @default 0 */
  readonly seed?: number
}

const NUM_TRAIN = 300
const NUM_HIDDEN = 150
const KINDS = ['a', 'b', 'c'] as const

/**
 * A table of 300 rows with four numbers, a kind and a target, `train.csv`. The submission is `predict.py`, which gets
 * 150 rows without targets, and prints a prediction a line; `model.json` is passed on with it. The score is R² on those rows, at least -1; of
 * the mean of all targets, with which the agent begins, it is about 0, and of the law without its noise about 0.98.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `OUT_OF_RANGE` for a seed.
 *
 * @example
 * ```ts
 * import { fitTable } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const { files, trial } = fitTable({ seed: 7 })
 * assert.deepEqual(Object.keys(files), ['train.csv', 'predict.py'])
 * assert.deepEqual(Object.keys(trial?.files ?? {}), ['train.csv', 'rows.csv'])
 * assert.deepEqual(fitTable({ seed: 7 }).files, files)
 * ```
 */
export function fitTable(options: FitTableOptions = {}): MLGymTask {
  checkKnownKeys('options', options, ['seed'])
  using rng = Rng.fromSeed(options.seed ?? 0).stream('fitTable')
  const law = drawLaw(rng)
  const rows = Array.from({ length: NUM_TRAIN + NUM_HIDDEN }, () => drawRow(rng, law))
  const [seen, hidden] = [rows.slice(0, NUM_TRAIN), rows.slice(NUM_TRAIN)]
  const train = lines(['x1,x2,x3,x4,kind,y', ...seen.map(({ inputs, target }) => `${inputs},${target}`)])
  return {
    name: 'fitTable',
    instructions: INSTRUCTIONS,
    files: { 'train.csv': train, 'predict.py': PREDICT },
    submission: ['predict.py', 'model.json'],
    trial: {
      command: ['python3', 'predict.py', 'rows.csv'],
      files: {
        'train.csv': train,
        'rows.csv': lines(['x1,x2,x3,x4,kind', ...hidden.map(({ inputs }) => inputs)]),
      },
    },
    scorer: {
      command: ['python3', '-I', 'score.py'],
      files: { 'answers.txt': lines(hidden.map(({ target }) => target)), 'score.py': SCORE },
    },
  }
}

/** Coefficients of `y = a x1 + b x2 x3 + c x4^2 + shift(kind) + noise`. */
interface Law {
  readonly slope: number
  readonly product: number
  readonly square: number
  readonly shifts: readonly number[]
}

function drawLaw(rng: Rng): Law {
  const between = (min: number, max: number) =>
    (min + (max - min) * rng.uniform()) * (rng.uniform() < 0.5 ? -1 : 1)
  const [slope, product, square] = [between(1, 2), between(1, 2), between(1, 2)]
  return { slope, product, square, shifts: KINDS.map(() => between(0, 2)) }
}

function drawRow(rng: Rng, { slope, product, square, shifts }: Law) {
  const [x1 = 0, x2 = 0, x3 = 0, x4 = 0] = Array.from({ length: 4 }, () => 4 * rng.uniform() - 2)
  const kind = Math.floor(KINDS.length * rng.uniform())
  const target = slope * x1 + product * x2 * x3 + square * x4 * x4 + (shifts[kind] ?? 0) + 0.3 * rng.normal()
  return {
    inputs: `${[x1, x2, x3, x4].map((x) => x.toFixed(4)).join()},${KINDS[kind]}`,
    target: target.toFixed(4),
  }
}

function lines(texts: readonly string[]): string {
  return texts.map((text) => `${text}\n`).join('')
}

const INSTRUCTIONS = `train.csv has ${NUM_TRAIN} rows with the columns x1, x2, x3, x4 (numbers), kind (a, b or c) and y (a number). \
Improve predict.py: python3 predict.py ROWS reads a CSV file like train.csv without y, and prints a prediction of y for each of its rows, \
one a line. It is scored by R^2 (the coefficient of determination) on ${NUM_HIDDEN} rows that you do not have. It is run with train.csv, and with model.json if you write one, \
and with no other file of yours. There is Python 3 with its standard library alone.`

const PREDICT = `import csv, sys

with open("train.csv") as file:
    targets = [float(row["y"]) for row in csv.DictReader(file)]
mean = sum(targets) / len(targets)
with open(sys.argv[1]) as file:
    for row in csv.DictReader(file):
        print(mean)
`

const SCORE = `import json, math, sys

def end(result):
    print(json.dumps(result))
    sys.exit()

with open("answers.txt") as file:
    answers = [float(word) for word in file.read().split()]
try:
    guesses = [float(word) for word in sys.stdin.read().split()]
except ValueError as error:
    end({"invalid": f"predictions must be numbers: {error}"})
if len(guesses) != len(answers):
    end({"invalid": f"there must be {len(answers)} predictions: got {len(guesses)}"})
if not all(map(math.isfinite, guesses)):
    end({"invalid": "predictions must be finite"})
mean = sum(answers) / len(answers)
error = sum((a - g) * (a - g) for a, g in zip(answers, guesses))
spread = sum((a - mean) * (a - mean) for a in answers)
end({"score": max(-1.0, 1 - error / spread)})
`
