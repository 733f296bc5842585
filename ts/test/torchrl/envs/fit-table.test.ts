import { describe, expect, it } from 'vitest'
import { fitTable, type MLGymTask } from '../../../src/torchrl/index.js'
import { worksHere } from '../../tools/sandbox-here.js'
import { failing } from './chats.js'
import { block, play } from './ml-gym.js'

const isUsable = await worksHere()

/** Least squares over products of the columns, by normal equations. */
const LEAST_SQUARES = `import csv, sys

def features(row):
    x = [float(row[f"x{i}"]) for i in range(1, 5)]
    kind = [float(row["kind"] == k) for k in "abc"]
    return x + kind + [x[i] * x[j] for i in range(4) for j in range(i, 4)]

def solve(a, b):
    n = len(b)
    for i in range(n):
        p = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[p], b[i], b[p] = a[p], a[i], b[p], b[i]
        for r in range(i + 1, n):
            f = a[r][i] / a[i][i]
            for c in range(i, n):
                a[r][c] -= f * a[i][c]
            b[r] -= f * b[i]
    w = [0.0] * n
    for i in reversed(range(n)):
        w[i] = (b[i] - sum(a[i][c] * w[c] for c in range(i + 1, n))) / a[i][i]
    return w

rows = list(csv.DictReader(open("train.csv")))
xs, ys = [features(r) for r in rows], [float(r["y"]) for r in rows]
n = len(xs[0])
a = [[sum(x[i] * x[j] for x in xs) + 1e-6 * (i == j) for j in range(n)] for i in range(n)]
w = solve(a, [sum(x[i] * y for x, y in zip(xs, ys)) for i in range(n)])
for row in csv.DictReader(open(sys.argv[1])):
    print(sum(f * v for f, v in zip(features(row), w)))`

const numbersIn = (text: unknown) => String(text).trim().split('\n').map(Number)
const meanOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length

/** R² of the mean of the rows to train on, in the rows that are hidden. */
function scoreOfMean({ files, scorer }: MLGymTask): number {
  const targets = String(files['train.csv'])
    .trim()
    .split('\n')
    .slice(1)
    .map((row) => Number(row.split(',').at(-1)))
  const [answers, guess] = [numbersIn(scorer.files['answers.txt']), meanOf(targets)]
  const mean = meanOf(answers)
  const sumOfSquares = (from: number) => answers.reduce((sum, answer) => sum + (answer - from) ** 2, 0)
  return 1 - sumOfSquares(guess) / sumOfSquares(mean)
}

describe('fitTable', () => {
  it('draws the same table for a seed, and another for another', () => {
    expect(fitTable({ seed: 5 })).toEqual(fitTable({ seed: 5 }))
    expect(fitTable({ seed: 5 }).files).not.toEqual(fitTable({ seed: 6 }).files)
    expect(fitTable()).toEqual(fitTable({ seed: 0 }))
    expect(() => fitTable({ seed: -1 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => fitTable({ seeds: 1 } as never)).toThrow(failing('UNKNOWN_NAME'))
  })

  it('keeps the hidden rows out of what the agent has, and their targets out of the trial', () => {
    const { files, trial, scorer } = fitTable({ seed: 2 })
    const hidden = String(trial?.files['rows.csv']).trim().split('\n').slice(1)
    const answers = String(scorer.files['answers.txt']).trim().split('\n')
    expect([hidden.length, answers.length]).toEqual([150, 150])
    const lines = (all: unknown) => new Set(String(all).split('\n'))
    const train = lines(files['train.csv'])
    for (const [at, row] of hidden.entries()) expect(train.has(`${row},${answers[at]}`)).toBe(false)
    expect(Object.keys(trial?.files ?? {}).sort()).toEqual(['rows.csv', 'train.csv'])
  })
})

describe.runIf(isUsable)('an agent at fitTable', () => {
  it.each([0, 1])('that fits the law has nearly all of the score, seed %i', async (seed) => {
    const task = fitTable({ seed })
    const { result } = await play(task, [`${block('write predict.py', LEAST_SQUARES)}\n${block('submit')}`])
    if (result?.status !== 'scored') throw new Error(JSON.stringify(result))
    expect(result.baseline).toBeCloseTo(scoreOfMean(task), 10)
    expect(result.score).toBeGreaterThan(0.95)
    expect(result.reward).toBe(result.score - result.baseline)
  })

  it('may pass on a model in model.json, and a bad one has a score of -1', async () => {
    const code = 'import json\nfor _ in range(150): print(json.load(open("model.json"))["guess"])'
    const { result } = await play(fitTable(), [
      block('write model.json', '{"guess": 1e300}'),
      `${block('write predict.py', code)}\n${block('submit')}`,
    ])
    expect(result).toMatchObject({ status: 'scored', score: -1 })
  })
})
