//! The server, asked as a browser asks it.

mod ahead;
mod amounts;
mod cache;
mod client;
mod corpus;
mod guard;
mod late;
mod made_up;
mod measure;
mod odd;
mod shifts;
