# SPDX-License-Identifier: MIT
"""Templates of prompts, and the words that fill them.

A template is a text with slots in braces:

    {topic}       a word of the list "topic"; the same slot again gives the same word
    {topic2}      another word of the same list
    {a_animal}    with its article, {A_animal} with a capital
    {n 3-9}       a number from 3 to 9, inclusive; {n} gives it again
    {=n*7}        what the expression gives
    {:n 3-9}      nothing: a number that only expressions use

Numbers are drawn before anything is written, so an expression may stand before what it uses. A template
cannot contain braces of its own.
"""

import random
import re

LISTS: dict[str, list[str]] = {}


def words(name: str, text: str) -> None:
    """Adds the words of a text, with commas between, to a list."""
    found = (" ".join(word.split()) for word in text.split(","))
    LISTS.setdefault(name, []).extend(word for word in found if word)


def with_article(word: str) -> str:
    sounds_like_consonant = re.match(r"(uni|use|usu|eu|one|uk)", word, re.IGNORECASE)
    return ("an " if word[0].lower() in "aeiou" and not sounds_like_consonant else "a ") + word


def fill(template: str, rng: random.Random, **given: str) -> str:
    """Given words stand for their slots as they are."""
    taken = dict(given)
    drawn = re.findall(r"\{:?(\w+) (\d+)-(\d+)\}", template)
    numbers = {name: rng.randint(int(low), int(high)) for name, low, high in drawn}

    def word(slot: str) -> str:
        if slot not in taken:
            choices = LISTS[slot.rstrip("0123456789")]
            while (choice := rng.choice(choices)) in taken.values():
                pass
            taken[slot] = choice
        return taken[slot]

    def filled(match: re.Match) -> str:
        if match[1].startswith("="):
            return str(eval(match[1][1:], {}, numbers))  # the templates are ours
        if match[1].startswith(":"):
            return ""
        name = match[1].partition(" ")[0]
        if name in numbers:
            return str(numbers[name])
        if name.startswith(("a_", "A_")):
            return name[0] + with_article(word(name[2:]))[1:]
        return word(name)

    return re.sub(r"\{([^{}]+)\}", filled, template)


def lines(templates: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in templates.strip().splitlines()]


words("name", """Anna, Ben, Carlos, Dina, Elena, Farid, Grace, Hiro, Ines, Jamal, Kofi, Lena, Marco, Nadia, Omar, Priya,
Quinn, Rosa, Samuel, Tara, Uma, Victor, Wei, Ximena, Yusuf, Zoe, Mr. Lee, Mrs. Novak, Aisha, Bruno, Chloe, Diego, Emeka,
Freya, Gustav, Hannah, Ivan, Julia, Kenji, Laila, Mateo, Nora, Oscar, Paula, Ravi, Sofia, Tom, Valerie, William,
Zara""")
words("place", """Paris, Tokyo, New York, Cairo, Rome, London, Sydney, Rio de Janeiro, Iceland, Norway, Kenya, Peru,
Vietnam, India, Canada, Greece, Portugal, the Alps, the Sahara, a small fishing village, a mountain cabin, Barcelona,
Berlin, Istanbul, Morocco, Thailand, New Zealand, Scotland, Ireland, Mexico City, Chicago, the Amazon rainforest,
Antarctica, Singapore, Seoul, Prague, Vienna, the Grand Canyon, Venice, South Africa, Argentina, the Moon, Mars, a
crowded train station, an old library, a desert island, Amsterdam, Stockholm, Cuba, Nepal, Madagascar, Sicily""")
words("country", """France, Japan, Egypt, Italy, England, Australia, Brazil, Iceland, Norway, Kenya, Peru, Vietnam,
India, Canada, Greece, Portugal, Spain, Germany, Turkey, Morocco, Thailand, New Zealand, Scotland, Ireland, Mexico,
Singapore, South Korea, Austria, South Africa, Argentina, the Netherlands, Sweden, Cuba, Nepal, Nigeria, Poland,
Ukraine, Finland, China, Indonesia, Colombia, Chile, Switzerland, Denmark, Ethiopia, Iran, Israel, Pakistan, the
Philippines, Ghana""")
words("job", """teacher, nurse, software engineer, chef, carpenter, librarian, pilot, electrician, journalist, lawyer,
accountant, architect, dentist, farmer, firefighter, graphic designer, mechanic, musician, paramedic, pharmacist,
photographer, plumber, police officer, psychologist, salesperson, scientist, social worker, translator, truck driver,
veterinarian, waiter, data analyst, project manager, astronaut, tour guide, gardener, tailor, baker, personal trainer,
real estate agent, receptionist, marine biologist, civil engineer, film director, history professor, detective""")
words("language", """French, Spanish, German, Italian, Portuguese, Dutch, Latin, Swedish, Polish, Russian, Chinese,
Japanese, Turkish, Esperanto, Danish, Arabic""")
words("proglang", """Python, Python, Python, Python, JavaScript, JavaScript, Java, C++, C, Rust, Go, TypeScript, Ruby,
PHP, Bash, C#, Kotlin, Swift, Haskell, R, Lua, Perl""")
words("audience", """a five-year-old child, a curious teenager, a complete beginner, a high school student, an expert in
another field, my grandmother, a busy manager, a new employee, a college freshman, someone who hates mathematics, a
visitor from another planet, a group of tourists, my little brother, a skeptical friend, a class of ten-year-olds""")
words("style", """a pirate, a Victorian poet, a news reporter, a stand-up comedian, a sports commentator, a fairy tale,
a legal contract, a children's book, a scientific paper, a hard-boiled detective novel, a motivational speaker, a text
message, a haiku, a ballad, an advertisement, a diary entry, a medieval knight, a robot, a film trailer""")
words("feeling", """joy, sadness, anger, fear, surprise, loneliness, hope, jealousy, gratitude, guilt, pride, boredom,
nostalgia, anxiety, relief, curiosity, love, disappointment, shame, wonder, frustration, excitement, grief, calm""")
words("genre", """science fiction, fantasy, mystery, romance, horror, comedy, historical fiction, adventure, western,
fable, ghost story, detective story, satire, fairy tale, thriller, coming-of-age story""")
words("hobby", """gardening, chess, knitting, hiking, photography, cooking, painting, birdwatching, playing the guitar,
running, swimming, woodworking, astronomy, fishing, stamp collecting, baking, cycling, yoga, calligraphy, pottery, rock
climbing, reading, dancing, singing in a choir, board games, model trains, beekeeping, camping, origami, surfing,
learning languages, writing poetry, juggling, table tennis, sewing, kayaking, playing the piano, homebrewing""")
words("skill", """touch typing, public speaking, time management, negotiation, swimming, driving a car, parallel
parking, cooking rice, ironing a shirt, tying a tie, changing a flat tire, writing a resume, taking notes, speed
reading, budgeting, drawing faces, playing chess, mental arithmetic, programming, first aid, map reading, active
listening, saying no, remembering names, baking bread, sharpening a knife, sewing on a button, meditating, planning a
trip, giving feedback, asking good questions, learning vocabulary, writing a business plan, debugging a program""")
words("occasion", """a birthday, a wedding, a farewell party, a graduation, a job promotion, a housewarming, Mother's
Day, New Year's Eve, a retirement, a family reunion, a baby shower, an anniversary, Halloween, a school play, a picnic,
a team meeting, a charity run, a book club evening, Thanksgiving, a summer barbecue, a science fair""")
words("product", """a reusable water bottle, noise-cancelling headphones, a folding bicycle, an electric toothbrush,
organic dog food, a smart thermostat, handmade candles, a language learning app, a standing desk, hiking boots, a solar
phone charger, a cookbook for students, an espresso machine, a wool sweater, a robot vacuum cleaner, a children's tent,
an online course on drawing, a board game about trains, herbal tea, a travel backpack, a desk lamp, a kitchen knife, a
budgeting app, a garden hose, a rain jacket, running shoes, a fitness tracker, a used car""")
words("problem", """I can't fall asleep at night, my plants keep dying, I always procrastinate, my neighbor is too loud,
my computer is very slow, I forget people's names, I am nervous before exams, my dog barks at strangers, I spend too
much money, I don't get along with a coworker, I feel tired every afternoon, my bread does not rise, I have too many
emails, I want to change careers, I find it hard to make friends, my phone battery dies quickly, I keep losing my keys,
my child does not want to read, I have back pain from sitting, I am learning to cook, I can't decide between two job
offers, my team misses every deadline, I am bored at work, my room is always messy, I get distracted by my phone, I have
stage fright, my internet connection is unstable, I want to drink less coffee, I moved to a new city and know nobody, I
failed an important test, I argue a lot with my sister, I want to save money""")
words("goal", """lose five kilograms, run a marathon, learn Spanish, read more books, save for a house, get a promotion,
start a podcast, learn to code, write a novel, eat less sugar, wake up earlier, travel around the world, start a small
business, grow vegetables on a balcony, pass a driving test, learn the guitar, organize a small wedding, reduce plastic
waste, get better at chess, prepare for a job interview, train a puppy, build a website, quit smoking, move to another
country, improve my handwriting, learn to swim as an adult, meditate every day, run a book club""")
words("company", """a small bakery, an online bookstore, a law firm, a startup for electric bikes, a hotel, a hospital,
a gym, a software company, a bank, a flower shop, a car repair shop, a travel agency, a language school, a museum, a
coffee shop, a furniture store, a delivery service, a toy manufacturer, an airline, a restaurant, a public library""")
words("season", "spring, summer, autumn, winter")
words("tone", "formal, friendly, humorous, polite, persuasive, serious, casual, enthusiastic, neutral, diplomatic")
words("figure", """Albert Einstein, Marie Curie, Cleopatra, Leonardo da Vinci, Isaac Newton, William Shakespeare, Ada
Lovelace, Mahatma Gandhi, Nelson Mandela, Charles Darwin, Galileo Galilei, Florence Nightingale, Julius Caesar, Joan of
Arc, Mozart, Beethoven, Vincent van Gogh, Alan Turing, Aristotle, Socrates, Confucius, Napoleon Bonaparte, Abraham
Lincoln, Queen Victoria, Marco Polo, Johannes Gutenberg, Nikola Tesla, Thomas Edison, Rosa Parks, Jane Austen, Mark
Twain, Johann Sebastian Bach, Archimedes, Euclid, Neil Armstrong, Amelia Earhart, Simon Bolivar, Frida Kahlo""")
words("topic", """climate change, remote work, machine learning, artificial intelligence, renewable energy, online
privacy, social media, electric cars, space exploration, vaccination, the water cycle, photosynthesis, plate tectonics,
black holes, evolution, the immune system, supply and demand, inflation, compound interest, democracy, human rights, the
French Revolution, the Roman Empire, World War II, the Industrial Revolution, ancient Egypt, the Renaissance, the Cold
War, the internet, blockchain, quantum computing, cybersecurity, cloud computing, open source software, databases,
version control, operating systems, computer networks, encryption, recursion, sorting algorithms, object-oriented
programming, functional programming, unit testing, video games, television, jazz, classical music, hip hop,
impressionism, modern art, architecture, poetry, theater, photography, fashion, vegetarianism, coffee, tea, chocolate,
bread, wine, street food, breakfast, healthy eating, exercise, sleep, meditation, stress, friendship, marriage,
parenting, homeschooling, universities, student loans, job interviews, leadership, teamwork, entrepreneurship,
marketing, advertising, customer service, taxes, insurance, the stock market, budgeting, retirement, public transport,
bicycles, airplanes, trains, bridges, skyscrapers, urban planning, recycling, plastic pollution, deforestation,
biodiversity, coral reefs, whales, bees, dogs, cats, horses, dinosaurs, volcanoes, earthquakes, hurricanes, rainbows,
the Moon, the solar system, gravity, electricity, magnetism, light, sound, atoms, DNA, viruses, bacteria, antibiotics,
the human heart, the brain, memory, dreams, emotions, intelligence, creativity, habits, motivation, happiness, ethics,
free will, stoicism, religion, mythology, language, translation, writing, grammar, libraries, newspapers, journalism,
fake news, freedom of speech, elections, the law, prisons, immigration, globalization, trade, agriculture, fishing,
nuclear power, batteries, robots, drones, smartphones, 3D printing, virtual reality, self-driving cars, gene editing,
statistics, probability, geometry, algebra, calculus, prime numbers, fractions, percentages, logic, chess, football,
basketball, tennis, the Olympic Games, swimming, mountaineering, gardening, houseplants, weather forecasts, maps, time
zones, calendars, money, gold, glass, steel, paper, cotton, soap, salt, sugar, rice, cheese, spices, potatoes""")
words("unit", """miles to kilometers, kilometers to miles, pounds to kilograms, kilograms to pounds, feet to meters,
inches to centimeters, liters to gallons, cups to milliliters, Celsius to Fahrenheit, Fahrenheit to Celsius, hours to
minutes, days to hours, weeks to days, grams to ounces, acres to square meters, minutes to seconds""")
# For exercises: what is counted, bought, eaten.
words("item", """apples, pencils, marbles, stickers, books, cookies, balloons, oranges, stamps, shells, coins, cards,
muffins, candles, flowers, eggs, bottles, notebooks, tickets, beads, buttons, peaches, toy cars, cupcakes, postcards""")
words("group", "classroom, team, club, choir, office, camp, village, orchestra, workshop, theater, factory")
words("work", "painting fences, mowing lawns, tutoring, washing cars, delivering newspapers, walking dogs, babysitting")
words("concept", """recursion, lists, dictionaries, loops, exceptions, inheritance, interfaces, closures, generators,
pointers, references, threads, asynchronous code, unit tests, modules, packages, type annotations, regular expressions,
string formatting, sorting, hash tables, sets, queues, operator overloading, garbage collection, immutability, scopes,
higher-order functions, file handling, logging, command line arguments, date and time, random numbers, integer overflow,
floating point numbers, memory management, serialization, environment variables, pattern matching, default arguments""")
words("howto", """read a file into a list of lines, sort a list of objects by a field, split a string by commas, make an
HTTP request, parse JSON, connect to a SQLite database, write to a log file, measure elapsed time, copy a list, iterate
over a dictionary, generate random numbers, round a number to two digits, format a date, catch several kinds of errors,
run a shell command, read command line arguments, remove spaces from a string, check whether a file exists, walk through
a folder, join strings with a separator, convert a string to an integer, reverse a list, find duplicates in a list,
merge two dictionaries, create a thread, read user input, write a unit test, replace text in a file, download a file,
compress a file, sum the values of a list, compare two strings, create a class with a constructor, sleep for a second,
stop a loop early, count the characters in a string""")
words("pattern", """an email address, a phone number such as 555-123-4567, a date in the form 2024-05-17, an IPv4
address, a hexadecimal color such as #ff8800, a word of at least four letters, a line that begins with a hash sign, a
floating point number, a time such as 23:59, a URL, a postal code of five digits, an HTML tag, a repeated word, a user
name of letters and digits, a credit card number in groups of four, a quoted string, an identifier in C, a Roman
numeral, a file name that ends in .csv, trailing white space, a version number such as 1.12.3""")
for table in """employees(id, name, department, salary, hired_on)
orders(id, customer_id, product, quantity, price, ordered_on)
books(isbn, title, author, year, copies)
students(id, name, grade, city, birthday)
flights(number, origin, destination, departure, seats)
movies(id, title, director, year, rating)
songs(id, title, artist, album, seconds)
patients(id, name, doctor, admitted_on, room)
matches(id, home, guest, home_goals, guest_goals, played_on)
sensors(id, place, temperature, humidity, measured_at)
recipes(id, name, minutes, servings, difficulty)
cars(plate, make, model, year, mileage, price)""".splitlines():
    LISTS.setdefault("table", []).append(table)
words("query", """returns all rows of the last month, counts the rows, returns the ten newest rows, finds duplicates,
groups the rows by a suitable column and counts each group, computes an average for every group, returns the row with
the largest value, adds a column, deletes rows that are older than a year, updates one row, lists the distinct values of
a column, sorts by two columns, finds rows in which a value is missing, joins it with a second table of your choice,
creates an index for the most frequent search, inserts a new row, returns the second largest value, numbers the rows
with a window function, shows a running total""")
words("shell", """finds all files larger than 100 MB, counts the lines of all .txt files, renames all .jpeg files to
.jpg, lists the ten largest folders, replaces a word in many files, shows which process uses port 8080, backs up a
folder, prints the second column of a file, removes empty files, watches a log file, shows the free space of all disks,
finds files that changed today, sorts a file and removes repeated lines, downloads a file and checks its checksum,
prints the most frequent words of a file, checks whether a web site answers, creates ten numbered folders""")
words("command", """`ls -la`, `grep -rn TODO src`, `chmod 755 run.sh`, `tar -xzf archive.tar.gz`, `git rebase -i
HEAD~3`, `git stash pop`, `find . -name '*.log' -delete`, `ps aux | grep python`, `df -h`, `du -sh *`, `ssh -L
8080:localhost:80 host`, `curl -I example.com`, `sort file.txt | uniq -c`, `kill -9 1234`, `sudo apt-get update`,
`docker ps -a`, `git cherry-pick abc123`, `awk '{print $1}' file.txt`, `sed -i 's/old/new/g' file.txt`, `ln -s target
link`, `rsync -av src/ dst/`, `cat a b > c`""")
words("style_of_box", """centered box with a shadow, navigation bar at the top, button that changes its color, table
with stripes, card with a picture and a caption, page with two columns, footer that stays at the bottom, form with large
fields""")
words("animal", """cat, dog, horse, elephant, owl, fox, whale, spider, penguin, tiger, turtle, rabbit, wolf, bear, frog,
bee, ant, crocodile, giraffe, kangaroo, parrot, dolphin, shark, octopus, squirrel, hedgehog, snail, butterfly, eagle,
camel, goat, sheep, pig, cow, chicken, duck, swan, crow, bat, mole, mouse, otter, seal, lion, zebra, gorilla, panda,
koala, snake, lizard, salmon, jellyfish, crab, lobster, moth, firefly, pigeon, raccoon, deer, moose, hamster, beaver""")
words("food", """rice, pasta, tomatoes, potatoes, cheese, bread, chicken, salmon, tofu, lentils, spinach, mushrooms,
eggs, apples, bananas, strawberries, chocolate, honey, yogurt, carrots, onions, garlic, cabbage, pumpkin, beans, corn,
beef, shrimp, avocado, lemon, almonds, oats, pancakes, soup, pizza, curry, sushi, noodles, salad, pineapple, mango,
cauliflower, eggplant, zucchini, ginger, coconut milk, peanut butter, blueberries, cherries, walnuts, broccoli,
cucumbers, olives""")
