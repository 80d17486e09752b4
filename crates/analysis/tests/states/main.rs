//! States of real traces and of made-up ones.

mod checked;
mod corpus;
mod made_up;
