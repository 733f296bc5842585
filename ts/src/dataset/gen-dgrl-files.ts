/** Data sets of Gen-DGRL and their archives, relative to the folder of the server. */

/** The folder that all archives are in. */
export const GEN_DGRL_SERVER = 'https://dl.fbaipublicfiles.com/DGRL/Procgen/Datasets/Compressed'

/** The games of Procgen. */
const GAMES = [
  'bigfish',
  'bossfight',
  'caveflyer',
  'chaser',
  'climber',
  'coinrun',
  'dodgeball',
  'fruitbot',
  'heist',
  'jumper',
  'leaper',
  'maze',
  'miner',
  'ninja',
  'plunder',
  'starpilot',
]

/** The categories: their folders, and their nominal numbers of steps. */
const CATEGORIES = [
  ['1M_E', '1M/level_200/expert', 1_000_000],
  ['1M_S', '1M/level_200/suboptimal', 1_000_000],
  ['10M', '10M/level_200/expert', 10_000_000],
  ['25M', '25M/level_200/expert', 25_000_000],
  ['level_1_E', '100k/level_1/expert', 100_000],
  ['level_1_S', '100k/level_1/suboptimal', 100_000],
  ['level_40_E', '100k/level_40/expert', 100_000],
  ['level_40_S', '100k/level_40/suboptimal', 100_000],
] as const

/** An archive, and its nominal number of steps. */
export interface GenDgrlFile {
  /** Relative to the folder of the server. */
  readonly path: string
  /** Steps behind it are not read. */
  readonly numRowsMax: number
}

/** The archive of each data set. */
export const GEN_DGRL_FILES: ReadonlyMap<string, GenDgrlFile> = new Map(
  CATEGORIES.flatMap(([category, folder, numRowsMax]) =>
    GAMES.map((game) => [`${game}-${category}`, { path: `${folder}/${game}.tar.xz`, numRowsMax }] as const),
  ),
)
