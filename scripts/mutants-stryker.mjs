/** Plugin and vitest configuration of StrykerJS for `npm run mutants`: samples the mutants and runs the tests of one room. */

const { room, share, seed } = JSON.parse(process.env.FULMAR_MUTANTS)

/** Passes every mutant of the sample; ids are counted in the order of files and places. */
function sampleChecker() {
  const isDrawn = ({ id }) => Number(id) % share === seed % share
  const check = (mutant) =>
    isDrawn(mutant) ? { status: 'passed' } : { status: 'compileError', reason: 'not in the sample' }
  return {
    init: async () => {},
    group: async (mutants) => [mutants.map(({ id }) => id)],
    check: async (mutants) => Object.fromEntries(mutants.map((mutant) => [mutant.id, check(mutant)])),
  }
}
sampleChecker.inject = []

export const strykerPlugins = [{ kind: 'Checker', name: 'sample', factory: sampleChecker }]

/** Vitest bundles this file, so the import is that of the copy under test. */
export default async () => {
  const { default: config } = await import('../vitest.config.ts')
  const native = config.test.projects.find(({ test }) => test.name === 'native')
  const include = [`ts/test/${room}/**/*.test.ts`]
  return { test: { projects: [{ ...native, test: { ...native.test, include } }] } }
}
