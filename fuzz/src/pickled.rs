//! Pickles, and the archives of Gen-DGRL and Open X-Embodiment, which hold them and images.

use fulmar::dataset::{Pickle, read_gen_dgrl, read_openx};

/// Most steps of an archive that are read.
const NUM_STEPS_MAX: usize = 1000;

/// Checks that accepted archives have steps, and that an accepted pickle can be walked.
pub fn run(data: &[u8]) {
    if let Ok(pickle) = Pickle::read(data) {
        let _ = (pickle.root().to_tensor(), pickle.root().items().map(Iterator::count));
    }
    if let Ok(steps) = read_gen_dgrl(data, NUM_STEPS_MAX) {
        assert!((1..=NUM_STEPS_MAX).contains(&steps.batch_size()[0]), "an archive must have steps");
    }
    let mut count = 0;
    let read = read_openx(data, 0, |steps| {
        count += 1;
        assert!(steps.batch_size()[0] > 0, "an episode must have steps");
        Ok(())
    });
    assert!(read.is_err() || read == Ok(count), "the episodes are those that were visited");
}
