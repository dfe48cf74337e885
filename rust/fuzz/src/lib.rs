//! Shared parts of the fuzz targets: structured input, forged trees, and the slow models of the tests.

#[path = "../../core/tests/support/agree.rs"]
pub mod agree;
pub mod forge;
pub mod input;
#[path = "../../core/tests/support/model.rs"]
pub mod model;
#[path = "../../front/tests/support/pieces.rs"]
pub mod pieces;
#[path = "../../core/tests/support/reference/mod.rs"]
pub mod reference;
#[path = "../../ops/tests/support/store.rs"]
pub mod store;
pub mod strict_json;
