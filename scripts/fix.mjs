/** `npm run fix`: everything that a program can put right by itself. */

import { asProgram, checkTools, installPackages, run, runTool } from './steps.mjs'

asProgram(async () => {
  checkTools()
  await installPackages()
  const fixes = [
    run('cargo', ['fmt', '--all'], { echo: true }),
    run('cargo', ['clippy', '--workspace', '--all-targets', '--fix', '--allow-dirty', '--quiet'], {
      echo: true,
    }),
    runTool('@biomejs/biome/bin/biome', ['check', '--write', '--colors=off'], { echo: true }),
  ]
  const codes = (await Promise.all(fixes)).map(({ code }) => code)
  return codes.every((code) => code === 0) ? 0 : 1
})
