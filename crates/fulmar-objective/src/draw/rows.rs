//! Draws of many rows of logits, each with options and a random word of its own.

use fulmar_compute::cpu::for_each_part;
use fulmar_compute::{Compute, DrawInputs, DrawPlan, Draws, View};
use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};

use super::gumbel::Noise;
use super::scores::{Changes, nothing_left};
use super::{Draw, DrawContext, DrawMethod, DrawOptions, draw_on_cpu};

/// A row of [`RowDraws::draw`].
#[derive(Debug, Clone, Copy)]
pub struct DrawRow<'a> {
    /// The options of the draw. Their device is not read: rows are drawn from where they are.
    pub options: &'a DrawOptions,
    /// The tokens so far, and those that are allowed.
    pub context: DrawContext<'a>,
    /// The position of the generator before the draw, which takes one word from there.
    pub rng: RngState,
}

/// A draw of [`RowDraws::read`].
#[derive(Debug, Clone, PartialEq)]
pub struct RowDraw {
    /// The token.
    pub draw: Draw,
    /// The likeliest ids under the unmodified model with their log-probs, the likeliest first.
    pub top_log_probs: Vec<(u32, f32)>,
}

/// Draws of many rows on one device, with the ids and log-probs of [`draw_in`](super::draw_in) on the processor. On a GPU they are
/// queued, and one copy reads all of them.
///
/// # Examples
/// ```
/// use fulmar_compute::{Compute, View};
/// use fulmar_objective::{DrawContext, DrawOptions, DrawRow, RowDraws, draw_rng};
/// let logits = [0.5, 2.0, -1.0, 3.0, 0.0, 0.0]; // two rows of three
/// let greedy = DrawOptions { temperature: 0.0, ..DrawOptions::default() };
/// let row = |seed| DrawRow { options: &greedy, context: DrawContext::default(), rng: draw_rng(seed, 0).state() };
/// let mut draws = RowDraws::new(Compute::Cpu, 2, 1)?;
/// draws.draw(View::from(&logits), &[row(1), row(2)])?;
/// let drawn = draws.read()?.into_iter().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!((drawn[0].draw.id, drawn[1].draw.id), (1, 0));
/// assert_eq!(drawn[0].top_log_probs, [(1, drawn[0].draw.log_prob)]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct RowDraws {
    num_top: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Drawn(Vec<Result<RowDraw>>),
    /// Draws on a GPU, and what is wrong with the inputs of each.
    Queued(Draws, Vec<Result<()>>),
}

impl RowDraws {
    /// Makes room for draws of `num_rows` rows on a device, and for the `num_top` likeliest ids of each.
    ///
    /// # Errors
    /// On a GPU `OutOfMemory`, and `Unavailable` for more than 4,096 likeliest ids.
    pub fn new(compute: Compute, num_rows: usize, num_top: usize) -> Result<Self> {
        let state = match compute {
            Compute::Cpu => State::Drawn(Vec::with_capacity(num_rows)),
            Compute::Cuda(card) => State::Queued(Draws::new(card, num_rows, num_top)?, Vec::new()),
        };
        Ok(Self { num_top, state })
    }

    /// Draws from the next rows, whose logits are `[N, V]`.
    ///
    /// # Errors
    /// `ShapeMismatch` for logits that are no rows of one width. Errors of single rows are returned by [`RowDraws::read`].
    ///
    /// # Panics
    /// If there are more rows than room, or logits of another device.
    pub fn draw(&mut self, logits_nv: View<'_, f32>, rows: &[DrawRow<'_>]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let vocab = logits_nv.len() / rows.len();
        if vocab * rows.len() != logits_nv.len() {
            let (len, rows) = (logits_nv.len(), rows.len());
            let detail = format!("logits must be {rows} rows of one width: got {len} numbers");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        match &mut self.state {
            State::Drawn(drawn) => {
                let mut of_rows: Vec<_> = rows.iter().zip(logits_nv.cpu().chunks_exact(vocab)).collect();
                drawn.extend(for_each_part(&mut of_rows, |(row, logits)| row.draw(logits, self.num_top)));
            }
            State::Queued(draws, checked) => {
                let mut plan = DrawPlan::default();
                checked.extend(rows.iter().map(|row| row.push(vocab, &mut plan)));
                draws.queue(logits_nv, &plan);
            }
        }
        Ok(())
    }

    /// Returns the draws in order of the rows. Waits for a GPU once.
    ///
    /// # Errors
    /// Errors of the device. Of a row, the errors of [`draw_in`](super::draw_in).
    pub fn read(self) -> Result<Vec<Result<RowDraw>>> {
        let (draws, checked) = match self.state {
            State::Drawn(drawn) => return Ok(drawn),
            State::Queued(draws, checked) => (draws, checked),
        };
        let of_row = |(found, checked): (fulmar_compute::Drawn, Result<()>)| {
            checked?;
            if found.log_prob.is_nan() {
                let detail = "logits must be finite, or -inf where others are finite: got a row with others";
                return Err(Error::new(ErrorKind::NonFinite, detail));
            }
            if found.sampled_log_prob.is_nan() {
                return Err(nothing_left());
            }
            let fulmar_compute::Drawn { id, log_prob, sampled_log_prob, top_log_probs } = found;
            Ok(RowDraw { draw: Draw { id, log_prob, sampled_log_prob }, top_log_probs })
        };
        Ok(draws.read()?.into_iter().zip(checked).map(of_row).collect())
    }
}

impl DrawRow<'_> {
    /// Draws from the row's logits on the processor, with the `num_top` likeliest ids.
    ///
    /// # Errors
    /// The errors of [`draw_in`](super::draw_in).
    pub fn draw(&self, logits: &[f32], num_top: usize) -> Result<RowDraw> {
        let draw = draw_on_cpu(logits, self.options, &self.context, &mut Rng::from_state(self.rng))?;
        Ok(RowDraw { draw, top_log_probs: Compute::Cpu.top_k_log_probs(logits, num_top) })
    }

    /// Adds the draw to a plan; the draw of wrong inputs is not read.
    fn push(&self, vocab: usize, plan: &mut DrawPlan) -> Result<()> {
        let changes = self.options.check().and_then(|()| Changes::of(self.options, &self.context, vocab));
        let changes = match changes {
            Ok(changes) => changes,
            Err(error) => {
                plan.push(&DrawInputs::default());
                return Err(error);
            }
        };
        let options = self.options;
        let mut rng = Rng::from_state(self.rng);
        let noise = (options.draw_method == DrawMethod::GumbelMax).then(|| Noise::of(&rng).stream());
        let DrawOptions { top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff, top_h, .. } = *options;
        plan.push(&DrawInputs {
            biases: &changes.biases,
            seen: &changes.seen,
            penalties: changes.penalties,
            banned: &changes.banned,
            allowed: changes.allowed,
            temperature: options.temperature,
            top_k: options.top_k.unwrap_or(0),
            cuts: [top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff, top_h.unwrap_or(0.0)],
            word: rng.next_u32(),
            noise,
        });
        Ok(())
    }
}
