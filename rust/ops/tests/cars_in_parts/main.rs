//! CARs that are continued or sent in parts.

#[path = "../support/store.rs"]
mod store;

#[path = "../support/cars.rs"]
mod cars;

mod continued;
mod leaves;
