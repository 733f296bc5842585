// Prints what the core says of the GPUs of this process: its driver is the library that the loader finds first.

import { gpus, placeDevice } from 'fulmar'

const attempt = (run) => {
  try {
    return run()
  } catch ({ code, message }) {
    return { code, message }
  }
}
process.stdout.write(JSON.stringify({ gpus: attempt(gpus), placed: attempt(() => placeDevice('cuda:1')) }))
