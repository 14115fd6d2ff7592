//! Actions that run, by the library and by the command: their steps against servers that count.

mod command;
mod ends;
mod hostile;
mod keys;
mod kills;
mod on_record;
mod seed;
mod stage;
