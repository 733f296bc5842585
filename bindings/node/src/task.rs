//! Long work off the event loop.

use fulmar::core::{Error, ErrorKind, Result};
use napi::bindgen_prelude::{AsyncTask, ToNapiValue, TypeName};
use napi::{Env, Task};

use crate::error::{catch, coded};

type Body<T> = Box<dyn FnOnce() -> Result<T> + Send>;

/// One call that runs on a worker thread and settles a promise.
pub struct Work<T> {
    body: Option<Body<T>>,
}

/// Returns a promise of what `body` returns; its error or panic rejects the promise with a coded error.
///
/// `body` owns the values it uses: clone an `Arc` (see [`crate::slot::Slot::share`]) before the call.
pub fn task<T>(body: impl FnOnce() -> Result<T> + Send + 'static) -> AsyncTask<Work<T>>
where
    T: ToNapiValue + TypeName + Send + 'static,
{
    AsyncTask::new(Work { body: Some(Box::new(body)) })
}

impl<T: ToNapiValue + TypeName + Send + 'static> Task for Work<T> {
    type Output = Result<T>;
    type JsValue = T;

    fn compute(&mut self) -> napi::Result<Self::Output> {
        let body = self.body.take();
        Ok(catch(|| match body {
            Some(body) => body(),
            None => Err(Error::new(ErrorKind::Closed, "task must run once: got a second run")),
        }))
    }

    fn resolve(&mut self, env: Env, output: Self::Output) -> napi::Result<T> {
        output.map_err(|error| coded(&env, &error))
    }
}
