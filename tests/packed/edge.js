/** Uses the installed edge package, as it is and in the bundles for browsers, which find the bytes of the module in `globalThis.moduleBytes`. */

import { createRenderer, describeBuild, FulmarError, GRPOLoss, HfTokenizer, init, Rng, trainByteBpe } from 'fulmar-edge'

function check(what, got, wanted) {
  if (JSON.stringify(got) !== JSON.stringify(wanted))
    throw new Error(`${what}: got ${JSON.stringify(got)} in place of ${JSON.stringify(wanted)}`)
}

async function main() {
  const { moduleBytes: module } = globalThis
  if (module) {
    let early
    try {
      Rng.fromSeed(0)
    } catch (error) {
      early = error instanceof FulmarError && error.code
    }
    check('a use before init', early, 'UNAVAILABLE')
  }
  await init(module ? { module } : {})
  check('the build', describeBuild().backend, 'wasm')
  check('a random word', Rng.fromSeed(0).nextU32(), 0x6627e8d5)
  const tokenizer = trainByteBpe(['hi there'], { vocabSize: 260, specialTokens: ['<|im_start|>', '<|im_end|>'] })
  const { ids } = createRenderer(HfTokenizer.fromJson(tokenizer.toJSON()), { name: 'chatml' }).render([
    { role: 'user', content: 'hi' },
  ])
  check('a rendered chat', tokenizer.decode(ids), '<|im_start|>user\nhi<|im_end|>\n')
  check('a loss', typeof GRPOLoss, 'function')
}

main().then(
  () => console.log('ok'),
  (error) => {
    console.log(error)
    globalThis.process.exitCode = 1
  },
)
