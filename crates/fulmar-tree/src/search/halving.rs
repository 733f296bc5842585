//! Sequential halving: how often an action must have been visited to be considered, simulation by simulation.

/// Returns, for each simulation, the number of visits of the actions that are considered, if the search begins with `num_considered`
/// actions. Each phase visits its actions equally often, then halves them, down to two.
///
/// # Examples
/// ```
/// let visits = fulmar_tree::considered_visits(4, 16);
/// assert_eq!(visits, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
/// ```
#[must_use]
pub fn considered_visits(num_considered: usize, num_simulations: usize) -> Vec<i32> {
    if num_considered <= 1 {
        return (0..num_simulations as i32).collect();
    }
    let num_phases = num_considered.next_power_of_two().trailing_zeros() as usize;
    let mut sequence = Vec::with_capacity(num_simulations);
    let mut visits = vec![0; num_considered];
    let mut considered = num_considered;
    while sequence.len() < num_simulations {
        let rounds = (num_simulations / (num_phases * considered)).max(1);
        for _ in 0..rounds {
            sequence.extend_from_slice(&visits[..considered]);
            visits[..considered].iter_mut().for_each(|count| *count += 1);
        }
        considered = (considered / 2).max(2);
    }
    sequence.truncate(num_simulations);
    sequence
}
