//! Arrays whose items are counted while they are read, so that memory is bounded before the text ends.

use std::fmt;
use std::marker::PhantomData;

use coregw_core::InputCode;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};

use super::refusal::refuse;

/// Reads the array that is the member `name`, of at most `max` items. The error of an item names its index.
///
/// # Errors
/// With `code`, as soon as there are more items.
pub(crate) fn array<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    name: &'static str,
    max: usize,
    code: InputCode,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(Items { name, max, code, items: PhantomData })
}

struct Items<T> {
    name: &'static str,
    max: usize,
    code: InputCode,
    items: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Vec<T>, A::Error> {
        let Self { name, max, code, .. } = self;
        let mut items = Vec::new();
        let in_item = |index: usize| move |error| A::Error::custom(format!("{name}[{index}]: {error}"));
        while let Some(item) = array.next_element().map_err(in_item(items.len()))? {
            if items.len() == max {
                return Err(refuse(code, &format!("{name}: more than {max} items")));
            }
            items.push(item);
        }
        Ok(items)
    }
}
