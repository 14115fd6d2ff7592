//! Actions that run, by the library and by the command: their steps against servers that count.

mod command;
mod ends;
mod foretold;
mod hostile;
mod keys;
mod kills;
mod large;
mod on_record;
mod outlived;
mod positions;
mod seed;
mod stage;
mod terminal;
