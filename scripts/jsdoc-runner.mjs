/** The other end of `jsdoc-examples.mjs`: imports the module it is told to, one after another, and says how it went. */

process.on('message', async (file) => {
  try {
    await import(file)
    process.send({ error: undefined })
  } catch (error) {
    process.send({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) })
  }
})
