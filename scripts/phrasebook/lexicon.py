"""The words: tables of nouns, adjectives, verbs, people and places, one entry a line.

A noun is written "english/plural german gender plural [weak form]", with "-" for a plural that is not used and "_" for
a blank inside a word; an adjective "english german stem [english comparative, german comparative]".
"""

from dataclasses import dataclass

from phrasebook.inflection import Adjective, Noun, Verb, verb


def _nouns(text: str) -> list[Noun]:
    result = []
    for line in text.strip().splitlines():
        english, german, gender, plural, *weak = line.replace("_", "\0").split()
        singular, _, many = english.replace("\0", " ").partition("/")
        result.append(Noun(singular, many, german, gender, plural, weak[0] if weak else ""))
    return result


CLOTHES = _nouns("""
coat/coats Mantel m Mäntel
jacket/jackets Jacke f Jacken
shirt/shirts Hemd n Hemden
dress/dresses Kleid n Kleider
skirt/skirts Rock m Röcke
hat/hats Hut m Hüte
sweater/sweaters Pullover m Pullover
scarf/scarves Schal m Schals
blouse/blouses Bluse f Blusen
suit/suits Anzug m Anzüge
belt/belts Gürtel m Gürtel
tie/ties Krawatte f Krawatten
bag/bags Tasche f Taschen
""")
WORN_IN_PAIRS = _nouns("""
shoe/shoes Schuh m Schuhe
boot/boots Stiefel m Stiefel
glove/gloves Handschuh m Handschuhe
sock/socks Socke f Socken
""")
FURNITURE = _nouns("""
table/tables Tisch m Tische
chair/chairs Stuhl m Stühle
lamp/lamps Lampe f Lampen
bed/beds Bett n Betten
cupboard/cupboards Schrank m Schränke
shelf/shelves Regal n Regale
carpet/carpets Teppich m Teppiche
mirror/mirrors Spiegel m Spiegel
sofa/sofas Sofa n Sofas
armchair/armchairs Sessel m Sessel
""")
# What people own, lose and look for.
BELONGINGS = _nouns("""
key/keys Schlüssel m Schlüssel
passport/passports Pass m Pässe
ticket/tickets Fahrkarte f Fahrkarten
umbrella/umbrellas Regenschirm m Regenschirme
watch/watches Uhr f Uhren
ring/rings Ring m Ringe
backpack/backpacks Rucksack m Rucksäcke
suitcase/suitcases Koffer m Koffer
mobile_phone/mobile_phones Handy n Handys
camera/cameras Kamera f Kameras
wallet/wallets Brieftasche f Brieftaschen
book/books Buch n Bücher
""")
VEHICLES_OWNED = _nouns("""
car/cars Auto n Autos
bicycle/bicycles Fahrrad n Fahrräder
boat/boats Boot n Boote
house/houses Haus n Häuser
""")
GIFTS = _nouns("""
book/books Buch n Bücher
postcard/postcards Postkarte f Postkarten
letter/letters Brief m Briefe
photo/photos Foto n Fotos
picture/pictures Bild n Bilder
present/presents Geschenk n Geschenke
flower/flowers Blume f Blumen
city_map/city_maps Stadtplan m Stadtpläne
newspaper/newspapers Zeitung f Zeitungen
""")
# Furniture that things lie on, stand on and hang above.
BASES = [piece for piece in FURNITURE if piece.en not in ("lamp", "mirror")]
# Things that German lays down, and things that it stands up.
LYING = _nouns("""
book/books Buch n Bücher
key/keys Schlüssel m Schlüssel
letter/letters Brief m Briefe
newspaper/newspapers Zeitung f Zeitungen
knife/knives Messer n Messer
fork/forks Gabel f Gabeln
spoon/spoons Löffel m Löffel
photo/photos Foto n Fotos
""")
STANDING = _nouns("""
bottle/bottles Flasche f Flaschen
cup/cups Tasse f Tassen
glass/glasses Glas n Gläser
vase/vases Vase f Vasen
candle/candles Kerze f Kerzen
suitcase/suitcases Koffer m Koffer
plate/plates Teller m Teller
bowl/bowls Schüssel f Schüsseln
""")
FRUIT = _nouns("""
apple/apples Apfel m Äpfel
pear/pears Birne f Birnen
orange/oranges Orange f Orangen
potato/potatoes Kartoffel f Kartoffeln
tomato/tomatoes Tomate f Tomaten
lemon/lemons Zitrone f Zitronen
onion/onions Zwiebel f Zwiebeln
banana/bananas Banane f Bananen
cherry/cherries Kirsche f Kirschen
plum/plums Pflaume f Pflaumen
carrot/carrots Karotte f Karotten
""")
SNACKS = _nouns("""
roll/rolls Brötchen n Brötchen
egg/eggs Ei n Eier
cake/cakes Kuchen m Kuchen
sausage/sausages Wurst f Würste
""")
GROCERIES = _nouns("""
butter/- Butter f -
cheese/- Käse m -
rice/- Reis m -
flour/- Mehl n -
sugar/- Zucker m -
salt/- Salz n -
""")
DRINKS = _nouns("""
water/- Wasser n -
milk/- Milch f -
wine/- Wein m -
juice/- Saft m -
beer/- Bier n -
""")
HOT_DRINKS = _nouns("""
coffee/- Kaffee m -
tea/- Tee m -
cocoa/- Kakao m -
""")
BOTTLE, GLASS, CUP, PIECE = _nouns("""
bottle/bottles Flasche f Flaschen
glass/glasses Glas n Gläser
cup/cups Tasse f Tassen
piece/pieces Stück n Stücke
""")
OTHER = _nouns("""
bread/- Brot n Brote
room/rooms Zimmer n Zimmer
appointment/appointments Termin m Termine
form/forms Formular n Formulare
window/windows Fenster n Fenster
radio/radios Radio n Radios
computer/computers Computer m Computer
washing_machine/washing_machines Waschmaschine f Waschmaschinen
shop/shops Geschäft n Geschäfte
wall/walls Wand f Wände
building/buildings Gebäude n Gebäude
office/offices Büro n Büros
flat/flats Wohnung f Wohnungen
floor/floors Stock m Stöcke
journey/journeys Fahrt f Fahrten
flight/flights Flug m Flüge
seat/seats Platz m Plätze
page/pages Seite f Seiten
inhabitant/inhabitants Einwohner m Einwohner
village/villages Dorf n Dörfer
pupil/pupils Schüler m Schüler
tree/trees Baum m Bäume
tram/trams Straßenbahn f Straßenbahnen
taxi/taxis Taxi n Taxis
""")
ROOMS = _nouns("""
kitchen/kitchens Küche f Küchen
bedroom/bedrooms Schlafzimmer n Schlafzimmer
living_room/living_rooms Wohnzimmer n Wohnzimmer
cellar/cellars Keller m Keller
bathroom/bathrooms Badezimmer n Badezimmer
dining_room/dining_rooms Esszimmer n Esszimmer
garage/garages Garage f Garagen
""")
TRANSPORT = _nouns("""
train/trains Zug m Züge
bus/buses Bus m Busse
ship/ships Schiff n Schiffe
ferry/ferries Fähre f Fähren
express_train/express_trains Schnellzug m Schnellzüge
""")
EVENTS = _nouns("""
meeting/meetings Besprechung f Besprechungen
concert/concerts Konzert n Konzerte
course/courses Kurs m Kurse
party/parties Feier f Feiern
exam/exams Prüfung f Prüfungen
game/games Spiel n Spiele
lecture/lectures Vortrag m Vorträge
guided_tour/guided_tours Führung f Führungen
""")
SHOPS = _nouns("""
bakery/bakeries Bäckerei f Bäckereien
pharmacy/pharmacies Apotheke f Apotheken
post_office/post_offices Post f -
bank/banks Bank f Banken
bookshop/bookshops Buchhandlung f Buchhandlungen
supermarket/supermarkets Supermarkt m Supermärkte
library/libraries Bibliothek f Bibliotheken
museum/museums Museum n Museen
restaurant/restaurants Restaurant n Restaurants
swimming_pool/swimming_pools Schwimmbad n Schwimmbäder
""")
SIGHTS = _nouns("""
church/churches Kirche f Kirchen
town_hall/town_halls Rathaus n Rathäuser
castle/castles Schloss n Schlösser
theatre/theatres Theater n Theater
school/schools Schule f Schulen
hospital/hospitals Krankenhaus n Krankenhäuser
hotel/hotels Hotel n Hotels
station/stations Bahnhof m Bahnhöfe
park/parks Park m Parks
cinema/cinemas Kino n Kinos
university/universities Universität f Universitäten
tower/towers Turm m Türme
bridge/bridges Brücke f Brücken
airport/airports Flughafen m Flughäfen
harbour/harbours Hafen m Häfen
market_square/market_squares Marktplatz m Marktplätze
""")
BUILDINGS = [*SHOPS, *SIGHTS]
# Those that may stand next to any other.
IN_TOWN = [place for place in BUILDINGS if place.en not in ("airport", "harbour", "university", "bridge")]
ROADS = _nouns("""
street/streets Straße f Straßen
crossing/crossings Kreuzung f Kreuzungen
door/doors Tür f Türen
traffic_lights/- Ampel f Ampeln
stop/stops Haltestelle f Haltestellen
""")
# Measures are counted with "one"; all other things with "a".
EURO, METRE, KILOMETRE, HOUR, MINUTE = _nouns("""
euro/euros Euro m Euro
metre/metres Meter m Meter
kilometre/kilometres Kilometer m Kilometer
hour/hours Stunde f Stunden
minute/minutes Minute f Minuten
""")
PERIODS = _nouns("""
day/days Tag m Tage
week/weeks Woche f Wochen
month/months Monat m Monate
year/years Jahr n Jahre
""")
MY_MEN = _nouns("""
brother/brothers Bruder m Brüder
father/fathers Vater m Väter
uncle/uncles Onkel m Onkel
grandfather/grandfathers Großvater m Großväter
son/sons Sohn m Söhne
""")
MY_WOMEN = _nouns("""
sister/sisters Schwester f Schwestern
mother/mothers Mutter f Mütter
aunt/aunts Tante f Tanten
grandmother/grandmothers Großmutter f Großmütter
daughter/daughters Tochter f Töchter
""")
MEN = _nouns("""
man/men Mann m Männer
doctor/doctors Arzt m Ärzte
teacher/teachers Lehrer m Lehrer
boss/bosses Chef m Chefs
boy/boys Junge m Jungen Jungen
customer/customers Kunde m Kunden Kunden
student/students Student m Studenten Studenten
tourist/tourists Tourist m Touristen Touristen
neighbour/neighbours Nachbar m Nachbarn Nachbarn
policeman/policemen Polizist m Polizisten Polizisten
waiter/waiters Kellner m Kellner
""")
WOMEN = _nouns("""
woman/women Frau f Frauen
nurse/nurses Krankenschwester f Krankenschwestern
waitress/waitresses Kellnerin f Kellnerinnen
saleswoman/saleswomen Verkäuferin f Verkäuferinnen
""")
CHILD, GIRL, PARENTS = _nouns("""
child/children Kind n Kinder
girl/girls Mädchen n Mädchen
parents/parents Eltern p Eltern
""")

NOUNS = {
    noun.en: noun
    for group in (
        CLOTHES,
        WORN_IN_PAIRS,
        FURNITURE,
        BELONGINGS,
        VEHICLES_OWNED,
        GIFTS,
        LYING,
        STANDING,
        FRUIT,
        SNACKS,
        GROCERIES,
        DRINKS,
        HOT_DRINKS,
        OTHER,
        ROOMS,
        TRANSPORT,
        EVENTS,
        BUILDINGS,
        ROADS,
        PERIODS,
        MY_MEN,
        MY_WOMEN,
        MEN,
        WOMEN,
        [BOTTLE, GLASS, CUP, PIECE, EURO, METRE, KILOMETRE, HOUR, MINUTE, CHILD, GIRL, PARENTS],
    )
    for noun in group
}


def named(text: str) -> list[Noun]:
    """The nouns with these English names, which are separated by commas."""
    return [NOUNS[name.strip()] for name in text.split(",")]


@dataclass(frozen=True)
class Trade:
    """An occupation with the German words for a man and for a woman."""

    en: str
    man: str
    woman: str


TRADES = [
    Trade(*line.split())
    for line in """
teacher Lehrer Lehrerin
doctor Arzt Ärztin
baker Bäcker Bäckerin
pilot Pilot Pilotin
lawyer Anwalt Anwältin
engineer Ingenieur Ingenieurin
journalist Journalist Journalistin
musician Musiker Musikerin
cook Koch Köchin
student Student Studentin
painter Maler Malerin
gardener Gärtner Gärtnerin
""".strip().splitlines()
]


def _adjectives(text: str) -> list[Adjective]:
    result = []
    for line in text.strip().splitlines():
        en, de, stem, *more = (word.replace("_", " ") for word in line.split())
        result.append(Adjective(en, de, stem, *more))
    return result


COLOURS = _adjectives("""
red rot rot
blue blau blau
green grün grün
black schwarz schwarz
white weiß weiß
yellow gelb gelb
brown braun braun
grey grau grau
""")
QUALITIES = _adjectives("""
new neu neu newer neuer
old alt alt older älter
small klein klein smaller kleiner
big groß groß bigger größer
cheap billig billig cheaper billiger
expensive teuer teur more_expensive teurer
beautiful schön schön more_beautiful schöner
heavy schwer schwer heavier schwerer
modern modern modern more_modern moderner
""")
_BY_SHAPE = _adjectives("""
long lang lang longer länger
short kurz kurz shorter kürzer
warm warm warm warmer wärmer
""")
CLOTHES_QUALITIES = [
    *(quality for quality in QUALITIES if quality.en != "heavy"),
    Adjective("dark", "dunkel", "dunkl", "darker", "dunkler"),
]
# For coats and skirts, which can also be long or warm.
LONG_CLOTHES_QUALITIES = CLOTHES_QUALITIES + _BY_SHAPE
TASTES = _adjectives("""
fresh frisch frisch
ripe reif reif
sweet süß süß
small klein klein
big groß groß
cheap billig billig
""")
NEAREST = Adjective("nearest", "nächst", "nächst")

# English name, German name.
CITIES = [
    tuple(line.split())
    for line in """
Berlin Berlin
Hamburg Hamburg
Munich München
Cologne Köln
Vienna Wien
Zurich Zürich
Frankfurt Frankfurt
Dresden Dresden
Leipzig Leipzig
Nuremberg Nürnberg
Hanover Hannover
Bremen Bremen
Stuttgart Stuttgart
Basel Basel
Geneva Genf
Prague Prag
Salzburg Salzburg
Bern Bern
Brunswick Braunschweig
Warsaw Warschau
""".strip().splitlines()
]

BE = Verb("be", "is", "was", "sein", "", ("bin", "ist", "sind"), "gewesen", "sein", preterite=("war", "war", "waren"))
HAVE = Verb(
    "have",
    "has",
    "had",
    "haben",
    "",
    ("habe", "hat", "haben"),
    "gehabt",
    "haben",
    preterite=("hatte", "hatte", "hatten"),
)
VERBS = {
    entry.infinitive: entry
    for entry in (
        verb("arrive", "arrived", "an|kommen", "kommt", "angekommen", "sein"),
        verb("ask", "asked", "fragen", "fragt", "gefragt"),
        verb("begin", "began", "beginnen", "beginnt", "begonnen"),
        verb("end", "ended", "enden", "endet", "geendet"),
        verb("hope", "hoped", "hoffen", "hofft", "gehofft"),
        verb("say", "said", "sagen", "sagt", "gesagt"),
        verb("think", "thought", "glauben", "glaubt", "geglaubt"),
        Verb("know", "knows", "knew", "wissen", "", ("weiß", "weiß", "wissen"), "gewusst", "haben"),
        verb("bring", "brought", "bringen", "bringt", "gebracht"),
        verb("bring along", "brought along", "mit|bringen", "bringt", "mitgebracht"),
        verb("buy", "bought", "kaufen", "kauft", "gekauft"),
        verb("call", "called", "an|rufen", "ruft", "angerufen"),
        verb("cancel", "cancelled", "ab|sagen", "sagt", "abgesagt"),
        verb("change trains", "changed trains", "um|steigen", "steigt", "umgestiegen", "sein"),
        verb("clean", "cleaned", "putzen", "putzt", "geputzt"),
        # Shops open and close with a separable verb, people open and close doors with a simple one.
        verb("open", "opened", "auf|machen", "macht", "aufgemacht"),
        verb("close", "closed", "zu|machen", "macht", "zugemacht"),
        verb("close", "closed", "schließen", "schließt", "geschlossen"),
        verb("come back", "came back", "zurück|kommen", "kommt", "zurückgekommen", "sein"),
        verb("depart", "departed", "ab|reisen", "reist", "abgereist", "sein"),
        verb("drink", "drank", "trinken", "trinkt", "getrunken"),
        verb("eat", "ate", "essen", "isst", "gegessen"),
        verb("fall asleep", "fell asleep", "ein|schlafen", "schläft", "eingeschlafen", "sein"),
        verb("fill in", "filled in", "aus|füllen", "füllt", "ausgefüllt"),
        verb("find", "found", "finden", "findet", "gefunden"),
        verb("fly", "flew", "fliegen", "fliegt", "geflogen", "sein"),
        verb("get off", "got off", "aus|steigen", "steigt", "ausgestiegen", "sein"),
        verb("get on", "got on", "ein|steigen", "steigt", "eingestiegen", "sein"),
        verb("get up", "got up", "auf|stehen", "steht", "aufgestanden", "sein"),
        verb("give", "gave", "geben", "gibt", "gegeben"),
        verb("give back", "gave back", "zurück|geben", "gibt", "zurückgegeben"),
        verb("go shopping", "went shopping", "ein|kaufen", "kauft", "eingekauft"),
        verb("hang", "hung", "hängen", "hängt", "gehängt"),
        verb("help", "helped", "helfen", "hilft", "geholfen"),
        verb("invite", "invited", "ein|laden", "lädt", "eingeladen"),
        verb("put", "put", "legen", "legt", "gelegt"),
        verb("put", "put", "stellen", "stellt", "gestellt"),
        verb("leave", "left", "ab|fahren", "fährt", "abgefahren", "sein"),
        verb("lend", "lent", "leihen", "leiht", "geliehen"),
        verb("listen to music", "listened to music", "hören", "hört", "gehört"),
        verb("live", "lived", "wohnen", "wohnt", "gewohnt"),
        verb("look for", "looked for", "suchen", "sucht", "gesucht"),
        verb("lose", "lost", "verlieren", "verliert", "verloren"),
        verb("meet", "met", "treffen", "trifft", "getroffen"),
        verb("miss", "missed", "verpassen", "verpasst", "verpasst"),
        verb("need", "needed", "brauchen", "braucht", "gebraucht"),
        verb("open", "opened", "öffnen", "öffnet", "geöffnet"),
        verb("order", "ordered", "bestellen", "bestellt", "bestellt"),
        verb("pack", "packed", "packen", "packt", "gepackt"),
        verb("pay for", "paid for", "bezahlen", "bezahlt", "bezahlt"),
        verb("pick up", "picked up", "ab|holen", "holt", "abgeholt"),
        verb("play", "played", "spielen", "spielt", "gespielt"),
        verb("postpone", "postponed", "verschieben", "verschiebt", "verschoben"),
        verb("prepare", "prepared", "vor|bereiten", "bereitet", "vorbereitet"),
        verb("repair", "repaired", "reparieren", "repariert", "repariert"),
        verb("sell", "sold", "verkaufen", "verkauft", "verkauft"),
        verb("send", "sent", "schicken", "schickt", "geschickt"),
        verb("show", "showed", "zeigen", "zeigt", "gezeigt"),
        verb("stay", "stayed", "bleiben", "bleibt", "geblieben", "sein"),
        verb("take", "took", "nehmen", "nimmt", "genommen"),
        verb("take part", "took part", "teil|nehmen", "nimmt", "teilgenommen"),
        verb("take place", "took place", "statt|finden", "findet", "stattgefunden"),
        verb("thank", "thanked", "danken", "dankt", "gedankt"),
        verb("tidy up", "tidied up", "auf|räumen", "räumt", "aufgeräumt"),
        verb("travel", "travelled", "fahren", "fährt", "gefahren", "sein"),
        verb("try on", "tried on", "an|probieren", "probiert", "anprobiert"),
        verb("turn off", "turned off", "aus|schalten", "schaltet", "ausgeschaltet"),
        verb("turn on", "turned on", "ein|schalten", "schaltet", "eingeschaltet"),
        verb("turn", "turned", "ab|biegen", "biegt", "abgebogen", "sein"),
        verb("visit", "visited", "besuchen", "besucht", "besucht"),
        verb("wait", "waited", "warten", "wartet", "gewartet"),
        verb("walk", "walked", "gehen", "geht", "gegangen", "sein"),
        verb("watch television", "watched television", "fern|sehen", "sieht", "ferngesehen"),
        verb("work", "worked", "arbeiten", "arbeitet", "gearbeitet"),
        verb("write", "wrote", "schreiben", "schreibt", "geschrieben"),
    )
}
