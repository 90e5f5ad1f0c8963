uno
dos