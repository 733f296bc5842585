//! The backward pass.

use fulmar_compute::{AttentionSaved, Memory};
use fulmar_core::{Error, ErrorKind, Result};

use super::{Activations, Decoder, no_scalar_head};
use crate::layer::{Gradients, LayerActivations, Scratch};
use crate::packing::{Read, Target};

impl Decoder {
    /// Adds the gradients of a loss, given its derivatives `[T]` with respect to the log-probs (and
    /// entropies) of the last [`Decoder::forward`]. Ignores values where the mask was 0. Uses up the
    /// activations.
    ///
    /// # Errors
    /// `Closed` without a forward pass before; `ShapeMismatch` for another length; `NonFinite` for a
    /// derivative that is not finite (the gradients are then unchanged). `OutOfMemory` or `Unavailable` for a GPU that
    /// fails: the gradients are then dropped, as only some of them are sums of the whole loss.
    pub fn backward(&mut self, d_log_prob: &[f32], d_entropy: Option<&[f32]>) -> Result<()> {
        self.check_trace(Read::Before)?;
        for (name, values) in [("d_log_prob", Some(d_log_prob)), ("d_entropy", d_entropy)] {
            self.check_derivatives(name, values.unwrap_or_default(), values.is_some())?;
        }
        self.adding_gradients(|decoder, activations, gradients| {
            let gradients_of = |target: &Target| {
                let token = target.token as usize;
                (d_log_prob[token], d_entropy.map_or(0.0, |d| d[token]))
            };
            let Activations { packed, head, x: d_x, .. } = activations;
            decoder.head().backward(head, &packed.targets, gradients_of, gradients, d_x)
        })
    }

    /// Adds the gradients of a loss, given its derivatives `[T]` with respect to the values of the last
    /// [`Decoder::forward_values`]. Ignores numbers where the mask was 0. Uses up the activations.
    ///
    /// # Errors
    /// The errors of [`Decoder::backward`].
    pub fn backward_values(&mut self, d_value: &[f32]) -> Result<()> {
        self.check_trace(Read::Own)?;
        self.check_derivatives("d_value", d_value, true)?;
        self.adding_gradients(|decoder, activations, gradients| {
            let scalar = decoder.scalar_head().ok_or_else(no_scalar_head)?;
            let Activations { packed, head, x: d_x, .. } = activations;
            let d_values: Vec<f32> =
                packed.targets.iter().map(|target| d_value[target.token as usize]).collect();
            decoder.head().backward_scalar(scalar, head, &packed.targets, &d_values, gradients, d_x)
        })
    }

    fn check_trace(&self, read: Read) -> Result<()> {
        if self.activations.ready == Some(read) {
            return Ok(());
        }
        let detail = match read {
            Read::Before => "backward must follow a forward pass",
            Read::Own => "backward_values must follow a forward pass of values",
        };
        Err(Error::new(ErrorKind::Closed, detail))
    }

    /// Runs a backward pass, which begins with the backward pass of a head.
    fn adding_gradients(
        &mut self,
        head: impl FnOnce(&Self, &mut Activations, &mut Gradients<'_>) -> Result<()>,
    ) -> Result<()> {
        self.weights.unpack_in_place(&self.layout);
        if self.gradients.is_empty() {
            self.gradients = self.compute.zeros(self.num_trainable())?;
        }
        let mut activations = std::mem::take(&mut self.activations);
        let mut gradients = std::mem::take(&mut self.gradients);
        let mut sink = match self.lora {
            None => Gradients::Weights(gradients.view_mut()),
            Some(_) => Gradients::Adapter(gradients.view_mut()),
        };
        let result = head(self, &mut activations, &mut sink)
            .and_then(|()| self.run_backward(&mut activations, &mut sink))
            .and_then(|()| self.compute.check());
        activations.ready = None;
        self.activations = activations;
        self.gradients = if result.is_ok() { gradients } else { Memory::default() };
        result
    }

    fn check_derivatives(&self, name: &str, values: &[f32], given: bool) -> Result<()> {
        if given && values.len() != self.activations.num_tokens {
            let detail = format!(
                "{name} must have one value a token ({}): got {}",
                self.activations.num_tokens,
                values.len()
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let Some(index) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
        let detail = format!("{name} must be finite: got {} at {index}", values[index]);
        Err(Error::new(ErrorKind::NonFinite, detail))
    }

    /// Runs the backward pass from the gradient of the residual stream in `activations.x` down to the
    /// embedding.
    fn run_backward(&self, activations: &mut Activations, gradients: &mut Gradients<'_>) -> Result<()> {
        let lora = self.merged_lora()?;
        let Activations { packed, layers, inputs, x: d_x, rope, workspace, scratch, .. } = activations;
        let Some(rope) = rope else { return Ok(()) };
        scratch.resize(&self.config, packed.ids.len(), self.compute, self.activation_dtype());
        self.compute.check()?;
        for index in (0..self.layout.layers.len()).rev() {
            let layer = self.layer(index, lora);
            let activations = match inputs.get(index) {
                None => &mut layers[index],
                Some(input) => {
                    let activations = &mut layers[0];
                    self.attend(layer, (activations, workspace), input, packed, rope);
                    layer.gate(activations, workspace);
                    self.compute.check()?;
                    activations
                }
            };
            layer.finish_backward(activations, workspace, gradients, d_x, scratch);
            let LayerActivations { q, k, v, attention, log_sum, .. } = &*activations;
            let (q, keys, values) = (q.view(), k.view(), v.view());
            let saved = AttentionSaved { q, keys, values, out: attention.view(), log_sum: log_sum.view() };
            let Scratch { wide: d_out, d_q, d_k, d_v, .. } = scratch;
            self.compute.attention_backward(
                self.config.attention(),
                saved,
                &packed.spans,
                &packed.blocks,
                &*d_out,
                d_q,
                d_k,
                d_v,
            );
            let rope = (&*rope, &packed.positions);
            layer.project_heads_backward(activations, workspace, gradients, d_x, scratch, rope);
        }
        if let Some(d_embed) = gradients.of(&self.layout.embed) {
            self.compute.embed_backward(&*d_x, self.config.hidden_size, &packed.ids, d_embed);
        }
        Ok(())
    }
}
