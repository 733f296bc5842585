/**
 * Changes of expected values that no comparison can notice, each with its reason. `npm run conform -- --perturb` counts them apart; they may be
 * one in a hundred of all.
 *
 * @type {readonly { topic: RegExp, place: RegExp, was?: 'byDecision', reason: string }[]}
 */
export const UNNOTICED = [
  {
    topic: /^(?:tensordict: |rlhf: AdaptiveKLController$)/,
    place: / a success into a failure$/,
    was: 'byDecision',
    reason: 'what Fulmar refuses on purpose agrees with a row that fails',
  },
  {
    topic: /^tensordict: index$/,
    place: /\.\$nt text$/,
    reason: 'a value that a batch of no elements shares stands nowhere',
  },
  {
    topic: /: (countdown_env|dataset_env|scheduler)$/,
    place: /^(items|resets|ok) length$/,
    reason: 'a row that goes on for less long is as right',
  },
  {
    topic: /^token data sets: get_dataloader$/,
    place: /^ok length$/,
    reason: 'fewer batches of an endless loader are as right',
  },
  {
    topic: /^specs: spec$/,
    place: /^ops\.rand_support\.ok(\.\*\.\*)? (length|number)$/,
    reason: 'which values of a large domain 3,000 draws meet is evidence and no target',
  },
  {
    topic: /^files of TorchRL: memmap$/,
    place: /^files/,
    was: 'byDecision',
    reason: 'pickles are left out of the list, as they are of the folder',
  },
  {
    topic: /^trees: exp3$/,
    place: /^ok\.\$dict\.\*\.\* length$/,
    reason: 'a row of fewer updates is as right',
  },
  {
    topic: /: prompt_group$/,
    place: /^within\.\d+\.\* number$/,
    reason: 'of rows with equal rewards it is chance which come',
  },
  {
    topic: /slice_flags$/,
    place: /^ok\.\$dict\.\*\.\*\.\* number$/,
    reason: 'a number that is drawn is rounded down to a step',
  },
  {
    topic: /prioritized_slice$/,
    place: /^slices\.\*\.slots(\.\*)? (length|number)$/,
    was: 'byDecision',
    reason: 'slices with spans are none that are drawn here',
  },
  {
    topic: /data sets: /,
    place: /(\.\$td batch size|\.\$dict\.\*\.\* (?:number|length))$/,
    reason: 'a nested dictionary may have all dimensions that its leaves share',
  },
  {
    topic: /data sets: AtariDQN$/,
    place: /\.next\.k\.done\.d\.\* number$/,
    was: 'byDecision',
    reason: 'the original has a flag of each row for each, of which one a row is compared',
  },
  {
    topic: /data sets: GenDGRL$/,
    place: /^ok\.all\.k/,
    was: 'byDecision',
    reason: 'a hash over rows beyond the last step cannot be compared',
  },
  {
    topic: /^fetches from the hub: snapshot_download$/,
    place: /^cache(?:\.\*\.\*)? (?:length|number)$/,
    was: 'byDecision',
    reason: 'listings, and parts that the official client leaves, are left out',
  },
  {
    topic: /data sets: OpenX_stream$/,
    place: /^ok length$/,
    reason: 'fewer batches of an endless stream are as right',
  },
  {
    topic: /^chat environments: simple_tool$/,
    place: /^results\.\* text$/,
    was: 'byDecision',
    reason: "the end of the sentence is that of Python's parser",
  },
]

/** Returns the reason that a change of that place may go unnoticed, if it may; `was` is the result of the unchanged row. */
export function reasonFor(topic, place, was) {
  return UNNOTICED.find((one) => one.topic.test(topic) && one.place.test(place) && (one.was ?? was) === was)
    ?.reason
}
