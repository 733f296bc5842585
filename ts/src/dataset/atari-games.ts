/** Games of Atari DQN replay, each with five runs. */

const GAMES =
  'AirRaid Alien Amidar Assault Asterix Asteroids Atlantis BankHeist BattleZone BeamRider Berzerk Bowling Boxing Breakout Carnival Centipede ChopperCommand CrazyClimber DemonAttack DoubleDunk ElevatorAction Enduro FishingDerby Freeway Frostbite Gopher Gravitar Hero IceHockey Jamesbond JourneyEscape Kangaroo Krull KungFuMaster MontezumaRevenge MsPacman NameThisGame Phoenix Pitfall Pong Pooyan PrivateEye Qbert Riverraid RoadRunner Robotank Seaquest Skiing Solaris SpaceInvaders'

/** Runs of a game. */
const NUM_RUNS = 5

/** The ids: a game and a run, such as `Pong/1`. */
export const ATARI_IDS: readonly string[] = GAMES.split(' ').flatMap((game) =>
  Array.from({ length: NUM_RUNS }, (_, run) => `${game}/${run + 1}`),
)
