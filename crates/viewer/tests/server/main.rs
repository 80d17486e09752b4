//! The server, asked as a browser asks it.

mod amounts;
mod cache;
mod client;
mod corpus;
mod guard;
mod late;
mod made_up;
mod measure;
mod odd;
mod prefetch;
mod shifts;
