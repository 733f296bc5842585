//! Arguments of Python functions: by position or by name.

use minijinja::Error;
use minijinja::value::{Kwargs, Value, from_args};

use crate::failure::type_error;

/// The arguments of one call of a function with known parameter names.
pub struct Arguments<'a> {
    function: &'a str,
    positional: &'a [Value],
    named: Kwargs,
    names: &'a [&'a str],
}

impl<'a> Arguments<'a> {
    /// Splits `values`, the arguments of `function` with parameter `names` in order.
    ///
    /// # Errors
    /// A type error for too many arguments, an unknown name, or one given twice.
    pub fn new(function: &'a str, values: &'a [Value], names: &'a [&'a str]) -> Result<Self, Error> {
        let (positional, named): (&[Value], Kwargs) = from_args(values)?;
        Self::with_named(function, positional, named, names)
    }

    /// Makes the arguments that the engine has already split.
    ///
    /// # Errors
    /// The errors of [`Arguments::new`].
    pub fn with_named(
        function: &'a str,
        positional: &'a [Value],
        named: Kwargs,
        names: &'a [&'a str],
    ) -> Result<Self, Error> {
        if positional.len() > names.len() {
            return Err(type_error(format!(
                "{function} takes {} arguments: got {}",
                names.len(),
                positional.len()
            )));
        }
        for name in named.args() {
            match names.iter().position(|known| *known == name) {
                Some(index) if index >= positional.len() => {}
                Some(_) => return Err(type_error(format!("{function} takes {name} once: got it twice"))),
                None => return Err(type_error(format!("{function} takes no argument {name}"))),
            }
        }
        Ok(Self { function, positional, named, names })
    }

    /// Returns the argument of this name, if it was given.
    pub fn get(&self, name: &str) -> Option<Value> {
        let index = self.names.iter().position(|known| *known == name)?;
        self.positional.get(index).cloned().or_else(|| self.named.get(name).ok())
    }

    /// Returns the argument of this name.
    ///
    /// # Errors
    /// A type error if it was not given.
    pub fn need(&self, name: &str) -> Result<Value, Error> {
        self.get(name).ok_or_else(|| type_error(format!("{} needs the argument {name}", self.function)))
    }

    /// Returns a text; `fallback` if it is missing.
    ///
    /// # Errors
    /// A type error for anything else.
    pub fn text(&self, name: &str, fallback: &str) -> Result<String, Error> {
        match self.get(name) {
            None => Ok(fallback.to_owned()),
            Some(value) => match value.as_str() {
                Some(text) => Ok(text.to_owned()),
                None => Err(self.wrong(name, "text", &value)),
            },
        }
    }

    /// Returns an integer; `fallback` if it is missing or none.
    ///
    /// # Errors
    /// A type error for anything else.
    pub fn integer(&self, name: &str, fallback: i64) -> Result<i64, Error> {
        match self.get(name) {
            None => Ok(fallback),
            Some(value) if value.is_none() => Ok(fallback),
            Some(value) => as_integer(&value).ok_or_else(|| self.wrong(name, "an integer", &value)),
        }
    }

    /// Returns the argument's truth value as in Python; `fallback` if it is missing.
    pub fn flag(&self, name: &str, fallback: bool) -> bool {
        self.get(name).map_or(fallback, |value| value.is_true())
    }

    fn wrong(&self, name: &str, rule: &str, value: &Value) -> Error {
        type_error(format!("{}: {name} must be {rule}: got {}", self.function, value.kind()))
    }
}

/// Returns an integer, or a truth value as Python counts it.
pub fn as_integer(value: &Value) -> Option<i64> {
    match bool::try_from(value.clone()) {
        Ok(truth) => Some(i64::from(truth)),
        Err(_) if value.is_integer() => value.as_i64(),
        Err(_) => None,
    }
}
