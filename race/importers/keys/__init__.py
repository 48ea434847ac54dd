"""Key tables, one JSON file per trainer; `race.importers._keys` reads and checks them."""
