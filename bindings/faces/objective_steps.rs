// The face of the value estimates of `fulmar-objective`, once for Node and for WebAssembly: each includes this table into its own
// `objective/steps.rs`, see `bindings/faces/tensor.rs`. Columns cross as one dictionary; factors that differ from step to step are
// among them.

use fulmar::compute::Compute;
use fulmar::core::{Dtype, Error, ErrorKind, Result as CoreResult, options_from_json};
use fulmar::objective::{
    PerStep, Real, StepBatch, TimeAxis, ValueEstimate, generalized_advantage_estimate,
    td_lambda_advantage_estimate, td_lambda_return_estimate, td0_advantage_estimate, td0_return_estimate,
    td1_advantage_estimate, td1_return_estimate, vtrace_advantage_estimate,
};
use fulmar::tensor::{self, Element};

/// Asks something of columns of singles or of doubles.
macro_rules! typed {
    ($steps:expr, |$columns:ident| $asked:expr) => {
        match $steps.dict.tensor("reward")?.dtype() {
            Dtype::F32 => {
                let $columns = Columns::<f32>::of($steps)?;
                $asked
            }
            Dtype::F64 => {
                let $columns = Columns::<f64>::of($steps)?;
                $asked
            }
            other => {
                let detail = format!("reward must be f32 or f64: got {}", other.name());
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
        }
    };
}

face! {
    /// Columns of steps, for estimates of returns and advantages.
    Steps(StepColumns)
    make {
        /// Takes columns whose shape is their batch size. `timeDim` is the time dimension; it defaults to the last but one.
        fn create as create(columns: &TensorDict, time_dim: Option<f64>) {{
            let dict = columns.share()?;
            let axis = TimeAxis::of(dict.batch_size(), time_dim.unwrap_or(-2.0) as isize)?;
            Ok(StepColumns { dict, axis })
        }}
    }
    call {
        /// Computes generalised advantage estimates.
        fn gae as gae(gamma: Option<f64>, lambda: Option<f64>) -> (TensorDict) {
            |steps| typed!(steps, |of| of.both(generalized_advantage_estimate(
                &of.steps(), &of.value, of.gamma(gamma), of.lambda(lambda)
            )?))
        }
        /// Computes V-trace advantages.
        fn vtrace as vtrace(gamma: Option<f64>, options: String) -> (TensorDict) {
            |steps| typed!(steps, |of| of.both(vtrace_advantage_estimate(
                &of.steps(), &of.value, [&of.log_pi, &of.log_mu], of.gamma(gamma), options_from_json("options", &options)?
            )?))
        }
        /// Computes returns over one step.
        fn td0_return as td0Return(gamma: Option<f64>) -> (Tensor) {
            |steps| typed!(steps, |of| of.one(td0_return_estimate(&of.steps(), of.gamma(gamma))?))
        }
        /// Computes advantages over one step.
        fn td0_advantage as td0Advantage(gamma: Option<f64>) -> (Tensor) {
            |steps| typed!(steps, |of| of.one(td0_advantage_estimate(&of.steps(), &of.value, of.gamma(gamma))?))
        }
        /// Computes returns to the end.
        fn td1_return as td1Return(gamma: Option<f64>, rolling: Option<bool>) -> (Tensor) {
            |steps| typed!(steps, |of| of.one(td1_return_estimate(
                &of.steps(), of.gamma(gamma), rolling.unwrap_or(true)
            )?))
        }
        /// Computes advantages to the end.
        fn td1_advantage as td1Advantage(gamma: Option<f64>, rolling: Option<bool>) -> (Tensor) {
            |steps| typed!(steps, |of| of.one(td1_advantage_estimate(
                &of.steps(), &of.value, of.gamma(gamma), rolling.unwrap_or(true)
            )?))
        }
        /// Computes returns over all lengths.
        fn td_lambda_return as tdLambdaReturn(gamma: Option<f64>, lambda: Option<f64>, rolling: Option<bool>) -> (Tensor) {
            |steps| typed!(steps, |of| of.one(td_lambda_return_estimate(
                &of.steps(), of.gamma(gamma), of.lambda(lambda), rolling.unwrap_or(true)
            )?))
        }
        /// Computes advantages over all lengths.
        fn td_lambda_advantage as tdLambdaAdvantage(gamma: Option<f64>, lambda: Option<f64>, rolling: Option<bool>) -> (Tensor) {
            |steps| typed!(steps, |of| of.one(td_lambda_advantage_estimate(
                &of.steps(), &of.value, of.gamma(gamma), of.lambda(lambda), rolling.unwrap_or(true)
            )?))
        }
        /// Computes the discounted sum of the rewards to come.
        fn reward_to_go as rewardToGo(gamma: f64) -> (Tensor) {
            |steps| typed!(steps, |of| of.one(fulmar::objective::reward2go(of.axis, &of.reward, &of.done, gamma, of.compute)?))
        }
    }
}

/// The columns of steps, unchecked.
#[derive(Clone)]
pub struct StepColumns {
    dict: tensor::TensorDict,
    axis: TimeAxis,
}

/// The same as slices. Missing columns are empty; an estimate that needs one refuses it.
struct Columns<T> {
    shape: Vec<usize>,
    axis: TimeAxis,
    compute: Compute,
    reward: Vec<T>,
    value: Vec<T>,
    next_value: Vec<T>,
    log_pi: Vec<T>,
    log_mu: Vec<T>,
    gamma: Vec<T>,
    lambda: Vec<T>,
    done: Vec<u8>,
    terminated: Option<Vec<u8>>,
}

impl<T: Real + Element> Columns<T> {
    fn of(steps: &StepColumns) -> CoreResult<Self> {
        let numbers = |name| column::<T>(&steps.dict, name).map(Option::unwrap_or_default);
        let flags = |name| {
            let flags = column::<bool>(&steps.dict, name)?;
            CoreResult::Ok(flags.map(|flags| flags.into_iter().map(u8::from).collect()))
        };
        Ok(Self {
            shape: steps.dict.batch_size().to_vec(),
            axis: steps.axis,
            compute: steps.dict.tensor("reward")?.compute(),
            reward: numbers("reward")?,
            value: numbers("value")?,
            next_value: numbers("nextValue")?,
            log_pi: numbers("logPi")?,
            log_mu: numbers("logMu")?,
            gamma: numbers("gamma")?,
            lambda: numbers("lambda")?,
            done: flags("done")?.unwrap_or_default(),
            terminated: flags("terminated")?,
        })
    }

    fn steps(&self) -> StepBatch<'_, T> {
        StepBatch {
            axis: self.axis,
            reward: &self.reward,
            next_value: &self.next_value,
            done: &self.done,
            terminated: self.terminated.as_deref(),
            compute: self.compute,
        }
    }

    fn gamma(&self, all: Option<f64>) -> PerStep<'_, T> {
        all.map_or(PerStep::Each(&self.gamma), PerStep::All)
    }

    fn lambda(&self, all: Option<f64>) -> PerStep<'_, T> {
        all.map_or(PerStep::Each(&self.lambda), PerStep::All)
    }

    fn one(&self, values: Vec<T>) -> CoreResult<tensor::Tensor> {
        tensor::Tensor::from_vec(&self.shape, values)
    }

    fn both(&self, estimate: ValueEstimate<T>) -> CoreResult<tensor::TensorDict> {
        let mut both = tensor::TensorDict::new(&self.shape)?;
        both.set("advantage", self.one(estimate.advantage)?)?;
        both.set("target", self.one(estimate.target)?)?;
        Ok(both)
    }
}

fn column<T: Element>(dict: &tensor::TensorDict, name: &str) -> CoreResult<Option<Vec<T>>> {
    let column = dict.get(name).map(|_| dict.tensor(name)?.to_vec());
    column.transpose().map_err(|error| error.at(name))
}
